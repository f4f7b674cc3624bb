//! Q3_K: 256 weights in 110 bytes, in scale groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 32 | `high` | bit 2 of the code: byte b holds weights b, b + 32, ... b + 224, low bit first |
//! | 64 | `low` | bits 0 and 1 of the code: byte b of 32 holds weights b, b + 32, b + 64, b + 96 |
//! | 12 | `scales` | 6 bits per group, 0 to 63: see below |
//! | 2 | `d` | scale of the scales, f16 |
//!
//! weight i = d * (scale(i / 16) - 32) * (code(i) - 4), code(i) = low(i) + 4 * high(i)
//!
//! Byte b of the first 8 of `scales` holds the low four bits of groups b and b + 8, byte b of the
//! last 4 the upper two bits of groups b, b + 4, b + 8 and b + 12.
//!
//! Source: GGUF type 11, ggml's `block_q3_K`.

use super::{
    Lanes, Tile, TileHead, bits,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 4] = [32, 64, 12, 2];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [high, low, scales, d] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let code = bits::code(low, 2, 32, i) | (bits::code(high, 1, 32, i) << 2);
        *out = d * f32::from(scale(scales, i / 16) as i8 - 32) * f32::from(code as i8 - 4);
    }
}

fn scale(scales: &[u8], group: usize) -> u8 {
    let (low, high) = scales.split_at(8);
    bits::code(low, 4, 8, group) | (bits::code(high, 2, 4, group) << 4)
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[64, 32, 12, 2],
    split,
    decoder: include_str!("../../kernels/format/q3_k.wgsl"),
    scales: 2,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [high, low, scales, d] = bits::split(block, FIELDS);
    for (low, out) in low.chunks_exact(32).zip(planes[0].chunks_exact_mut(32)) {
        planes::two_bits(low, out);
    }
    planes::one_bit(high, planes[1]);
    // Scales in the order of their groups: the low four bits of all groups, then the high two bits.
    let mut words = [0u32; 3];
    for group in 0..16 {
        let scale = u32::from(scale(scales, group));
        words[group / 8] |= (scale & 15) << (4 * (group % 8));
        words[2] |= (scale >> 4) << (2 * group);
    }
    for (out, word) in planes[2].chunks_exact_mut(4).zip(words) {
        out.copy_from_slice(&word.to_le_bytes());
    }
    planes[3].copy_from_slice(d);
}

/// Scales and minima of a tile's rows.
#[derive(Clone, Copy)]
pub(crate) struct Q3KHead<S: Simd> {
    d: S::F,
    /// Effective scale of a stored scale of 0: `-32 * d`.
    zero: S::F,
    /// Scales of 16 groups, one per byte.
    scales: [S::I; 4],
}

impl<S: Simd> TileHead<S> for Q3KHead<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller; the field `scales` is at byte 96, `d` at byte 108.
        unsafe {
            let [low_0, low_1] = [lanes.word::<S>(96, 0), lanes.word::<S>(96, 1)];
            let high = lanes.word::<S>(96, 2);
            let d = lanes.f16::<S>(108);
            Self {
                d,
                zero: S::mul(d, S::splat(-32.0)),
                scales: [
                    S::or(bits::extract::<S>(low_0, 0, 0, 4), bits::extract::<S>(high, 0, 4, 2)),
                    S::or(bits::extract::<S>(low_1, 0, 0, 4), bits::extract::<S>(high, 2, 4, 2)),
                    S::or(bits::extract::<S>(low_0, 4, 0, 4), bits::extract::<S>(high, 4, 4, 2)),
                    S::or(bits::extract::<S>(low_1, 4, 0, 4), bits::extract::<S>(high, 6, 4, 2)),
                ],
            }
        }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let scale = bits::unsigned::<S>(self.scales[group / 4], group % 4 * 8, 8);
            let scale = S::fma(self.d, scale, self.zero);
            (scale, S::mul(scale, S::splat(4.0)))
        }
    }
}

/// The tile decoder.
pub(crate) struct Q3K;

impl Tile for Q3K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 110;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 16;
    const BITS: u32 = 3;
    type Head<S: Simd> = Q3KHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the high bits start at byte 0, the low bits at byte 32.
        unsafe {
            let low = lanes.word::<S>(32, word / 32 * 8 + word % 8);
            let high = lanes.word::<S>(0, word % 8);
            S::or(bits::extract::<S>(low, word / 8 % 4 * 2, 0, 2), bits::extract::<S>(high, word / 8, 2, 1))
        }
    }
}
