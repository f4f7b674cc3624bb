//! Q4_1: 32 weights in 20 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 2 | `m` | minimum, f16 |
//! | 16 | `codes` | 4 bits per weight: weights 0 to 15 in low nibbles, 16 to 31 in high ones |
//!
//! weight i = d * code(i) + m
//!
//! Source: GGUF type 3, ggml's `block_q4_1`.

use super::{
    Lanes, Tile, bits,
    heads::ScaleMinHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 3] = [2, 2, 16];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, m, codes] = bits::split(block, FIELDS);
    let (d, m) = (bits::f16(d), bits::f16(m));
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(bits::code(codes, 4, 16, i)) + m;
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 1,
    bytes: &[16, 4],
    split,
    decoder: include_str!("../../kernels/format/q4_1.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let (scale_and_min, codes) = block.split_at(4);
    planes::copy([codes, scale_and_min], planes);
}

/// The tile decoder.
pub(crate) struct Q41;

impl Tile for Q41 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 20;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 4;
    type Head<S: Simd> = ScaleMinHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 4.
        unsafe { bits::extract::<S>(lanes.word::<S>(4, word % 4), word / 4 * 4, 0, 4) }
    }
}
