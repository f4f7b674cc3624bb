//! Q8_0: 32 weights in 34 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 32 | `codes` | one signed byte per weight |
//!
//! weight i = d * code(i)
//!
//! Source: GGUF type 8, ggml's `block_q8_0`.

use super::{
    Lanes, Tile, bits,
    heads::ScaleHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [2, 32];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (out, &code) in out.iter_mut().zip(codes) {
        *out = d * f32::from(code as i8);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 1,
    bytes: &[32, 2],
    split,
    decoder: include_str!("../../kernels/format/q8_0.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, codes] = bits::split(block, FIELDS);
    planes::copy([codes, d], planes);
}

/// The tile decoder.
pub(crate) struct Q80;

impl Tile for Q80 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 34;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 8;
    type Head<S: Simd> = ScaleHead<S, 0, 128>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 2, and flipping its top bit adds 128 to a
        // signed byte.
        unsafe { S::xor(lanes.word::<S>(2, word), S::splat_i(0x8080_8080_u32 as i32)) }
    }
}
