//! Q4_0: 32 weights in 18 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 16 | `codes` | 4 bits a weight, 0 to 15: weights 0 to 15 in the low halves, 16 to 31 in the high ones |
//!
//! weight i = d * (code(i) - 8)
//!
//! Source: GGUF's type 2, ggml's `block_q4_0`.

use super::{
    Lanes, Tile, bits,
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

pub(super) const PLANES: Planes =
    Planes { units: 1, bytes: &[16, 2], split, decoder: include_str!("../../kernels/format/q4_0.wgsl"), coded: true };

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, codes] = bits::split(block, FIELDS);
    planes::copy([codes, d], planes);
}

/// The decoder of tiles.
pub(crate) struct Q40;

impl Tile for Q40 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 18;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 4;
    type Head<S: Simd> = S::F;

    #[inline(always)]
    unsafe fn head<S: Simd>(lanes: Lanes) -> Self::Head<S> {
        // SAFETY: by the caller.
        unsafe { lanes.half::<S>(0) }
    }

    #[inline(always)]
    unsafe fn scale_min<S: Simd>(head: &Self::Head<S>, _group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe { (*head, S::mul(*head, S::splat(8.0))) }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes begin at byte 2.
        unsafe { bits::extract::<S>(lanes.word::<S>(2, word % 4), word / 4 * 4, 0, 4) }
    }
}
