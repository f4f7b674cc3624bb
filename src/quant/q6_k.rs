//! Q6_K: 256 weights in 210 bytes, in scale groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 128 | `low` | bits 0 to 3 of the code: 64 bytes per 128 weights, the first 64 in low nibbles |
//! | 64 | `high` | bits 4 and 5 of the code: byte b of 32 holds weights b, b + 32, b + 64, b + 96 |
//! | 16 | `scales` | one signed byte per group |
//! | 2 | `d` | scale of the scales, f16 |
//!
//! weight i = d * scale(i / 16) * (code(i) - 32), code(i) = low(i) + 16 * high(i)
//!
//! Source: GGUF type 14, ggml's `block_q6_K`.

use super::{
    Lanes, Tile, TileHead, bits,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 4] = [128, 64, 16, 2];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [low, high, scales, d] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let code = bits::code(low, 4, 64, i) | (bits::code(high, 2, 32, i) << 4);
        *out = d * f32::from(scales[i / 16] as i8) * f32::from(code as i8 - 32);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[128, 64, 16, 2],
    split,
    decoder: include_str!("../../kernels/format/q6_k.wgsl"),
    scales: 2,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [low, high, scales, d] = bits::split(block, FIELDS);
    for (low, out) in low.chunks_exact(64).zip(planes[0].chunks_exact_mut(64)) {
        // The first 32 bytes hold units 0 and 2, the next 32 bytes units 1 and 3.
        let (front, back) = out.split_at_mut(32);
        let ([first, second], [third, fourth]) = (halves(front), halves(back));
        planes::four_bits(&low[..32], first, third);
        planes::four_bits(&low[32..], second, fourth);
    }
    for (high, out) in high.chunks_exact(32).zip(planes[1].chunks_exact_mut(32)) {
        planes::two_bits(high, out);
    }
    planes[2].copy_from_slice(scales);
    planes[3].copy_from_slice(d);
}

fn halves(bytes: &mut [u8]) -> [&mut [u8]; 2] {
    bytes.split_at_mut(16).into()
}

/// Scales and minima of a tile's rows.
#[derive(Clone, Copy)]
pub(crate) struct Q6KHead<S: Simd> {
    d: S::F,
    /// Scales of 16 groups, one per byte.
    scales: [S::I; 4],
}

impl<S: Simd> TileHead<S> for Q6KHead<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller; the field `scales` is at byte 192, `d` at byte 208.
        unsafe { Self { d: lanes.f16::<S>(208), scales: lanes.four_words::<S>(192) } }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let scale = S::mul(self.d, bits::signed_byte::<S>(self.scales[group / 4], group % 4));
            (scale, S::mul(scale, S::splat(32.0)))
        }
    }
}

/// The tile decoder.
pub(crate) struct Q6K;

impl Tile for Q6K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 210;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 16;
    const BITS: u32 = 6;
    type Head<S: Simd> = Q6KHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the low bits start at byte 0, the high bits at byte 128.
        unsafe {
            let low = lanes.word::<S>(0, word / 32 * 16 + word % 16);
            let high = lanes.word::<S>(128, word / 32 * 8 + word % 8);
            S::or(bits::extract::<S>(low, word / 16 % 2 * 4, 0, 4), bits::extract::<S>(high, word / 8 % 4 * 2, 4, 2))
        }
    }
}
