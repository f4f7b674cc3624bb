//! Q5_K: 256 weights in 176 bytes, in scale groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `dmin` | scale of the minima, f16 |
//! | 12 | `scales` | 6-bit scale and minimum of each group, 0 to 63: see [`bits::scale_and_min`] |
//! | 32 | `high` | bit 4 of the code: byte b holds weight b of each group, group 0 in bit 0 |
//! | 128 | `low` | bits 0 to 3 of the code: 32 bytes hold two groups, the first in low nibbles |
//!
//! weight i = d * scale(i / 32) * code(i) - dmin * min(i / 32), code(i) = low(i) + 16 * high(i)
//!
//! Source: GGUF type 13, ggml's `block_q5_K`.

use super::{
    Lanes, Tile, bits,
    heads::KScalesHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 5] = [2, 2, 12, 32, 128];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, dmin, scales, high, low] = bits::split(block, FIELDS);
    let (d, dmin) = (bits::f16(d), bits::f16(dmin));
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = bits::scale_and_min(scales, i / 32);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let code = bits::code(low, 4, 32, i) | (bits::code(high, 1, 32, i) << 4);
        *out = scale * f32::from(code) - min;
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[128, 32, 16],
    split,
    decoder: include_str!("../../kernels/format/q5_k.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [_, _, scales, high, low] = bits::split(block, FIELDS);
    planes::four_bits_of_pairs(low, planes[0]);
    planes::one_bit(high, planes[1]);
    planes::scales_and_mins(&block[..4], |unit| bits::scale_and_min(scales, unit), planes[2]);
}

/// The tile decoder.
pub(crate) struct Q5K;

impl Tile for Q5K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 176;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 5;
    type Head<S: Simd> = KScalesHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the high bits start at byte 16, the low bits at byte 48.
        unsafe {
            let low = lanes.word::<S>(48, word / 16 * 8 + word % 8);
            let high = lanes.word::<S>(16, word % 8);
            S::or(bits::extract::<S>(low, word / 8 % 2 * 4, 0, 4), bits::extract::<S>(high, word / 8, 4, 1))
        }
    }
}
