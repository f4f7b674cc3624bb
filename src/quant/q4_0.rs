//! Q4_0: 32 weights in 18 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 16 | `codes` | 4 bits per weight: weights 0 to 15 in low nibbles, 16 to 31 in high ones |
//!
//! weight i = d * (code(i) - 8)
//!
//! Source: GGUF type 2, ggml's `block_q4_0`.

use super::{
    Lanes, Tile, bits,
    heads::ScaleHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [2, 16];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(bits::code(codes, 4, 16, i) as i8 - 8);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 1,
    bytes: &[16, 2],
    split,
    decoder: include_str!("../../kernels/format/q4_0.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, codes] = bits::split(block, FIELDS);
    planes::copy([codes, d], planes);
}

/// The tile decoder.
pub(crate) struct Q40;

impl Tile for Q40 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 18;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 4;
    type Head<S: Simd> = ScaleHead<S, 0, 8>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 2.
        unsafe { bits::extract::<S>(lanes.word::<S>(2, word % 4), word / 4 * 4, 0, 4) }
    }
}
