//! Q4_K: 256 weights in 144 bytes, in scale groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `dmin` | scale of the minima, f16 |
//! | 12 | `scales` | 6-bit scale and minimum of each group, 0 to 63: see [`bits::scale_and_min`] |
//! | 128 | `codes` | 4 bits per weight: 32 bytes hold two groups, the first in low nibbles |
//!
//! weight i = d * scale(i / 32) * code(i) - dmin * min(i / 32)
//!
//! Source: GGUF type 12, ggml's `block_q4_K`.

use super::{
    Lanes, Tile, bits,
    heads::KScalesHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 4] = [2, 2, 12, 128];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, dmin, scales, codes] = bits::split(block, FIELDS);
    let (d, dmin) = (bits::f16(d), bits::f16(dmin));
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = bits::scale_and_min(scales, i / 32);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        *out = scale * f32::from(bits::code(codes, 4, 32, i)) - min;
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[128, 16],
    split,
    decoder: include_str!("../../kernels/format/q4_k.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [_, _, scales, codes] = bits::split(block, FIELDS);
    planes::four_bits_of_pairs(codes, planes[0]);
    planes::scales_and_mins(&block[..4], |unit| bits::scale_and_min(scales, unit), planes[1]);
}

/// The tile decoder.
pub(crate) struct Q4K;

impl Tile for Q4K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 144;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 4;
    type Head<S: Simd> = KScalesHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 16.
        unsafe {
            let packed = lanes.word::<S>(16, word / 16 * 8 + word % 8);
            bits::extract::<S>(packed, word / 8 % 2 * 4, 0, 4)
        }
    }
}
