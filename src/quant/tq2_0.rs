//! TQ2_0: 256 weights in 66 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 64 | `codes` | 2 bits per weight: byte b of 32 holds weights b, b + 32, b + 64, b + 96 |
//! | 2 | `d` | scale, f16 |
//!
//! weight i = d * (code(i) - 1)
//!
//! Source: GGUF type 35, ggml's `block_tq2_0`.

use super::{
    Lanes, Tile, bits,
    heads::ScaleHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [64, 2];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [codes, d] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        *out = f32::from(bits::code(codes, 2, 32, i) as i8 - 1) * d;
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[64, 2],
    split,
    decoder: include_str!("../../kernels/format/tq2_0.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [codes, d] = bits::split(block, FIELDS);
    for (codes, out) in codes.chunks_exact(32).zip(planes[0].chunks_exact_mut(32)) {
        planes::two_bits(codes, out);
    }
    planes[1].copy_from_slice(d);
}

/// The tile decoder.
pub(crate) struct Tq20;

impl Tile for Tq20 {
    const COLUMNS: usize = 256;
    const BYTES: usize = 66;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 2;
    type Head<S: Simd> = ScaleHead<S, 64, 1>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 0.
        unsafe { bits::extract::<S>(lanes.word::<S>(0, word / 32 * 8 + word % 8), word / 8 % 4 * 2, 0, 2) }
    }
}
