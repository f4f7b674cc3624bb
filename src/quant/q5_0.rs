//! Q5_0: 32 weights in 22 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 4 | `high` | the code's bit 4, one bit a weight, as a little-endian integer |
//! | 16 | `low` | the code's bits 0 to 3: weights 0 to 15 in the low halves, 16 to 31 in the high ones |
//!
//! weight i = d * (code(i) - 16), code(i) = low(i) + 16 * high(i)
//!
//! Source: GGUF's type 6, ggml's `block_q5_0`.

use super::{
    Lanes, Tile, bits,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 3] = [2, 4, 16];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, high, low] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let code = bits::code(low, 4, 16, i) | (bits::code(high, 1, 1, i) << 4);
        *out = d * f32::from(code as i8 - 16);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 1,
    bytes: &[16, 4, 2],
    split,
    decoder: include_str!("../../kernels/format/q5_0.wgsl"),
    coded: true,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, high, low] = bits::split(block, FIELDS);
    planes::copy([low], planes);
    planes::fifth_bits(high, planes[1]);
    planes[2].copy_from_slice(d);
}

/// The decoder of tiles.
pub(crate) struct Q50;

impl Tile for Q50 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 22;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 5;
    type Head<S: Simd> = S::F;

    #[inline(always)]
    unsafe fn head<S: Simd>(lanes: Lanes) -> Self::Head<S> {
        // SAFETY: by the caller.
        unsafe { lanes.half::<S>(0) }
    }

    #[inline(always)]
    unsafe fn scale_min<S: Simd>(head: &Self::Head<S>, _group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe { (*head, S::mul(*head, S::splat(16.0))) }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the high bits are at byte 2, the low ones begin at byte 6.
        unsafe {
            let low = bits::extract::<S>(lanes.word::<S>(6, word % 4), word / 4 * 4, 0, 4);
            S::or(low, bits::fifth_bits::<S>(lanes.word::<S>(2, 0), word))
        }
    }
}
