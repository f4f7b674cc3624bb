//! MXFP4: 32 weights in 17 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 1 | `exponent` | E8M0: the scale's power of two, biased by 127 |
//! | 16 | `codes` | 4 bits per weight: weights 0 to 15 in low nibbles, 16 to 31 in high ones |
//!
//! weight i = 2^(exponent - 128) * DOUBLED[code(i)]
//!
//! A code is a float of one sign bit, two exponent bits and one mantissa bit (E2M1). An exponent of
//! 255 is NaN in the OCP microscaling specification, but 2^128 in ggml and therefore here. A
//! negative zero decodes as zero.
//!
//! Source: GGUF type 39, ggml's `block_mxfp4`.

use super::{
    Lanes, Tile, TileHead, bits,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [1, 16];

/// Twice the value of each code, so that all are integers, also for `NVFP4`.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [exponent, codes] = bits::split(block, FIELDS);
    let half_scale = half_scale(exponent[0]);
    for (i, out) in out.iter_mut().enumerate() {
        *out = half_scale * f32::from(DOUBLED[usize::from(bits::code(codes, 4, 16, i))]);
    }
}

/// Returns 2^(exponent - 128), which is subnormal for the exponents 0 and 1.
fn half_scale(exponent: u8) -> f32 {
    match exponent {
        0 => f32::from_bits(1 << 21),
        1 => f32::from_bits(1 << 22),
        _ => f32::from_bits(u32::from(exponent - 1) << 23),
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 1,
    bytes: &[16, 1],
    split,
    decoder: include_str!("../../kernels/format/mxfp4.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [exponent, codes] = bits::split(block, FIELDS);
    planes::copy([codes, exponent], planes);
}

/// The doubled values plus 16, as unsigned codes of a tile, also for `NVFP4`.
pub(super) static CODES: [u8; 16] = bits::raise(DOUBLED, 16);

/// Scales and minima of a tile's rows.
#[derive(Clone, Copy)]
pub(crate) struct Mxfp4Head<S: Simd>(S::F);

impl<S: Simd> TileHead<S> for Mxfp4Head<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // 2^(exponent - 127) has these exponent bits. Exponent 0 would give zero instead of that
        // subnormal power.
        let least = f32::from_bits(1 << 22);
        // SAFETY: by the caller; the exponent is at byte 0.
        unsafe { Self(S::mul(S::max(S::as_f(S::shl(lanes.u8::<S>(0), 23)), S::splat(least)), S::splat(0.5))) }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, _group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe { (self.0, S::mul(self.0, S::splat(16.0))) }
    }
}

/// The tile decoder. Limited to exponents up to 251, that is weights below 2^127, since the minimum
/// overflows for larger ones.
pub(crate) struct Mxfp4;

impl Tile for Mxfp4 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 17;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 5;
    type Head<S: Simd> = Mxfp4Head<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the indices start at byte 1.
        unsafe { S::lookup(&CODES, bits::extract::<S>(lanes.word::<S>(1, word % 4), word / 4 * 4, 0, 4)) }
    }
}
