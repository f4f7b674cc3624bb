//! IQ4_NL: 32 weights in 18 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 16 | `codes` | 4 bits a weight, indices of [`VALUES`]: weights 0 to 15 in the low halves, 16 to 31 in the high |
//!
//! weight i = d * VALUES[code(i)]
//!
//! Source: GGUF's type 20, ggml's `block_iq4_nl`.

use super::{
    Lanes, Tile, bits,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [2, 16];

/// What the codes stand for: steps that widen away from zero, as weights grow rarer there. `IQ4_XS` uses them too.
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(VALUES[usize::from(bits::code(codes, 4, 16, i))]);
    }
}

/// The values plus 128, which makes them unsigned codes.
pub(super) static CODES: [u8; 16] = bits::raise(VALUES, 128);

pub(super) const PLANES: Planes =
    Planes { units: 1, bytes: &[16, 2], split, decoder: include_str!("../../kernels/format/iq4_nl.wgsl"), coded: true };

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, codes] = bits::split(block, FIELDS);
    planes::copy([codes, d], planes);
}

/// The decoder of tiles.
pub(crate) struct Iq4Nl;

impl Tile for Iq4Nl {
    const COLUMNS: usize = 32;
    const BYTES: usize = 18;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 8;
    type Head<S: Simd> = S::F;

    #[inline(always)]
    unsafe fn head<S: Simd>(lanes: Lanes) -> Self::Head<S> {
        // SAFETY: by the caller.
        unsafe { lanes.half::<S>(0) }
    }

    #[inline(always)]
    unsafe fn scale_min<S: Simd>(head: &Self::Head<S>, _group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe { (*head, S::mul(*head, S::splat(128.0))) }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the indices begin at byte 2.
        unsafe { S::lookup(&CODES, bits::extract::<S>(lanes.word::<S>(2, word % 4), word / 4 * 4, 0, 4)) }
    }
}
