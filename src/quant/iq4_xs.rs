//! IQ4_XS: 256 weights in 136 bytes, in scale groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `scales_high` | bits 4 and 5 of the scales, two bits per group, little-endian |
//! | 4 | `scales_low` | bits 0 to 3 of the scales, four bits per group, little-endian |
//! | 128 | `codes` | 4 bits per weight: 16 bytes per group, the first 16 weights in low nibbles |
//!
//! weight i = d * (scale(i / 32) - 32) * VALUES[code(i)], with the values of `IQ4_NL`
//!
//! Source: GGUF type 23, ggml's `block_iq4_xs`.

use super::{
    Lanes, Tile, TileHead, bits, iq4_nl,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 4] = [2, 2, 4, 128];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, scales_high, scales_low, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = bits::code(scales_low, 4, 1, i / 32) | (bits::code(scales_high, 2, 1, i / 32) << 4);
        let value = iq4_nl::VALUES[usize::from(bits::code(codes, 4, 16, i))];
        *out = d * f32::from(scale as i8 - 32) * f32::from(value);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[128, 8],
    split,
    decoder: include_str!("../../kernels/format/iq4_xs.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let (scales, codes) = block.split_at(8);
    planes::copy([codes, scales], planes);
}

/// Scales and minima of a tile's rows.
#[derive(Clone, Copy)]
pub(crate) struct Iq4XsHead<S: Simd> {
    d: S::F,
    /// Effective scale of a stored scale of 0: `-32 * d`.
    zero: S::F,
    scales_high: S::I,
    scales_low: S::I,
}

impl<S: Simd> TileHead<S> for Iq4XsHead<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller; `d` is at byte 0, `scales_high` at byte 2, `scales_low` at byte 4.
        unsafe {
            let d = lanes.f16::<S>(0);
            Self {
                d,
                zero: S::mul(d, S::splat(-32.0)),
                scales_high: lanes.u16::<S>(2),
                scales_low: lanes.word::<S>(4, 0),
            }
        }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let low = S::and(S::shr(self.scales_low, 4 * group as u32), S::splat_i(15));
            let high = S::shl(S::and(S::shr(self.scales_high, 2 * group as u32), S::splat_i(3)), 4);
            let scale = S::fma(self.d, S::to_f(S::or(low, high)), self.zero);
            (scale, S::mul(scale, S::splat(128.0)))
        }
    }
}

/// The tile decoder.
pub(crate) struct Iq4Xs;

impl Tile for Iq4Xs {
    const COLUMNS: usize = 256;
    const BYTES: usize = 136;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 8;
    type Head<S: Simd> = Iq4XsHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the indices start at byte 8.
        unsafe {
            let packed = lanes.word::<S>(8, word / 8 * 4 + word % 4);
            S::lookup(&iq4_nl::CODES, bits::extract::<S>(packed, word / 4 % 2 * 4, 0, 4))
        }
    }
}
