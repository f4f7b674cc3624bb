//! Q5_1: 32 weights in 24 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 2 | `m` | minimum, f16 |
//! | 4 | `high` | bit 4 of the code, one bit per weight, little-endian |
//! | 16 | `low` | bits 0 to 3 of the code: weights 0 to 15 in low nibbles, 16 to 31 in high ones |
//!
//! weight i = d * code(i) + m, code(i) = low(i) + 16 * high(i)
//!
//! Source: GGUF type 7, ggml's `block_q5_1`.

use super::{
    Lanes, Tile, bits,
    heads::ScaleMinHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 4] = [2, 2, 4, 16];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, m, high, low] = bits::split(block, FIELDS);
    let (d, m) = (bits::f16(d), bits::f16(m));
    for (i, out) in out.iter_mut().enumerate() {
        let code = bits::code(low, 4, 16, i) | (bits::code(high, 1, 1, i) << 4);
        *out = d * f32::from(code) + m;
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 1,
    bytes: &[16, 4, 4],
    split,
    decoder: include_str!("../../kernels/format/q5_1.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let (scale_and_min, rest) = block.split_at(4);
    let (high, low) = rest.split_at(4);
    planes::copy([low], planes);
    planes::fifth_bits(high, planes[1]);
    planes[2].copy_from_slice(scale_and_min);
}

/// The tile decoder.
pub(crate) struct Q51;

impl Tile for Q51 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 24;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 5;
    type Head<S: Simd> = ScaleMinHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the high bits are at byte 4, the low bits start at byte 8.
        unsafe {
            let low = bits::extract::<S>(lanes.word::<S>(8, word % 4), word / 4 * 4, 0, 4);
            S::or(low, bits::one_bit::<S>(lanes.word::<S>(4, 0), word, 4))
        }
    }
}
