//! MXFP4: 32 weights in 17 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 1 | `exponent` | E8M0: the scale's power of two, biased by 127 |
//! | 16 | `codes` | 4 bits a weight: weights 0 to 15 in the low halves, 16 to 31 in the high ones |
//!
//! weight i = 2^(exponent - 128) * DOUBLED[code(i)]
//!
//! A code is a float of one sign bit, two exponent bits and one mantissa bit (E2M1). The OCP microscaling
//! specification reads a scale's exponent of 255 as not-a-number; ggml, and so this file, as 2^128. A code's negative
//! zero decodes as zero.
//!
//! Source: GGUF's type 39, ggml's `block_mxfp4`.

use super::{
    Lanes, Tile, bits,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [1, 16];

/// Twice what the codes stand for, which makes them whole.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [exponent, codes] = bits::split(block, FIELDS);
    let half_scale = half_scale(exponent[0]);
    for (i, out) in out.iter_mut().enumerate() {
        *out = half_scale * f32::from(DOUBLED[usize::from(bits::code(codes, 4, 16, i))]);
    }
}

/// 2^(exponent - 128), which for the two least exponents is a subnormal float.
fn half_scale(exponent: u8) -> f32 {
    match exponent {
        0 => f32::from_bits(1 << 21),
        1 => f32::from_bits(1 << 22),
        _ => f32::from_bits(u32::from(exponent - 1) << 23),
    }
}

pub(super) const PLANES: Planes =
    Planes { units: 1, bytes: &[16, 1], split, decoder: include_str!("../../kernels/format/mxfp4.wgsl"), coded: true };

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [exponent, codes] = bits::split(block, FIELDS);
    planes::copy([codes, exponent], planes);
}

/// The doubled values plus 16, which makes them unsigned codes.
static CODES: [u8; 16] = bits::raise(DOUBLED, 16);

/// The decoder of tiles, for exponents up to 251, so weights below 2^127: beyond, the minimum overflows.
pub(crate) struct Mxfp4;

impl Tile for Mxfp4 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 17;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 5;
    type Head<S: Simd> = S::F;

    #[inline(always)]
    unsafe fn head<S: Simd>(lanes: Lanes) -> Self::Head<S> {
        // A float whose exponent bits are these is 2^(exponent - 127), but zero for 0, where that power is subnormal.
        let least = f32::from_bits(1 << 22);
        // SAFETY: by the caller.
        unsafe { S::mul(S::max(S::as_f(S::shl(lanes.byte::<S>(0), 23)), S::splat(least)), S::splat(0.5)) }
    }

    #[inline(always)]
    unsafe fn scale_min<S: Simd>(head: &Self::Head<S>, _group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe { (*head, S::mul(*head, S::splat(16.0))) }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the indices begin at byte 1.
        unsafe { S::lookup(&CODES, bits::extract::<S>(lanes.word::<S>(1, word % 4), word / 4 * 4, 0, 4)) }
    }
}
