//! Q1_0: 128 weights in 18 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 16 | `codes` | one bit per weight, low bit first |
//!
//! weight i = d * (2 * code(i) - 1)
//!
//! Source: GGUF type 41, ggml's `block_q1_0`.

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
        *out = if bits::code(codes, 1, 1, i) == 1 { d } else { -d };
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 4,
    bytes: &[16, 2],
    split,
    decoder: include_str!("../../kernels/format/q1_0.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, codes] = bits::split(block, FIELDS);
    for (codes, out) in codes.chunks_exact(4).zip(planes[0].chunks_exact_mut(4)) {
        planes::fifth_bits(codes, out);
    }
    planes[1].copy_from_slice(d);
}

/// The tile decoder, whose codes are twice those of the format.
pub(crate) struct Q10;

impl Tile for Q10 {
    const COLUMNS: usize = 128;
    const BYTES: usize = 18;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 2;
    type Head<S: Simd> = ScaleHead<S, 0, 1>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 2.
        unsafe { bits::one_bit::<S>(lanes.word::<S>(2, word / 8), word % 8, 1) }
    }
}
