//! NVFP4: 64 weights in 36 bytes, in scale groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 4 | `scales` | one float per group: no sign, 4 bits of exponent, 3 of mantissa (E4M3) |
//! | 32 | `codes` | 4 bits per weight: 8 bytes per group, the first 8 weights in low nibbles |
//!
//! weight i = SCALES[scale(i / 16)] * DOUBLED[code(i)], with the codes of `MXFP4`
//!
//! Source: GGUF type 40, ggml's `block_nvfp4`.

use super::{Lanes, Tile, TileHead, bits, grid, mxfp4, planes::Planes};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [4, 32];

/// The bits of half of each scale, as f32. 127 means zero, and bit 7 is ignored otherwise.
static SCALES: [u32; 256] = {
    let mut scales = [0; 256];
    let mut scale = 0;
    while scale < 256 {
        let (exponent, mantissa) = (scale as u32 >> 3 & 15, scale as u32 & 7);
        scales[scale] = match (exponent, mantissa) {
            _ if scale == 127 => 0.0,
            (0, _) => mantissa as f32 / 1024.0,
            // 2^(exponent - 11) * (8 + mantissa)
            _ => (8 + mantissa) as f32 * f32::from_bits((exponent + 127 - 11) << 23),
        }
        .to_bits();
        scale += 1;
    }
    scales
};

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [scales, codes] = bits::split(block, FIELDS);
    for (i, out) in out.iter_mut().enumerate() {
        let half_scale = f32::from_bits(SCALES[usize::from(scales[i / 16])]);
        *out = half_scale * f32::from(mxfp4::DOUBLED[usize::from(bits::code(codes, 4, 8, i))]);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 2,
    bytes: &[32, 4],
    split,
    decoder: include_str!("../../kernels/format/nvfp4.wgsl"),
    scales: 2,
    table: &SCALES,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [scales, codes] = bits::split(block, FIELDS);
    for (i, out) in planes[0].iter_mut().enumerate() {
        let first = i / 16 * 32 + i % 16;
        *out = bits::code(codes, 4, 8, first) | (bits::code(codes, 4, 8, first + 16) << 4);
    }
    planes[1].copy_from_slice(scales);
}

/// Scales and minima of a tile's rows.
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4Head<S: Simd>(S::I);

impl<S: Simd> TileHead<S> for Nvfp4Head<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller; the scales are at byte 0.
        unsafe { Self(lanes.word::<S>(0, 0)) }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller; a byte is within the table.
        unsafe {
            let scale = S::as_f(S::gather(&SCALES, grid::field::<S>(self.0, 8 * group, 8)));
            (scale, S::mul(scale, S::splat(16.0)))
        }
    }
}

/// The tile decoder.
pub(crate) struct Nvfp4;

impl Tile for Nvfp4 {
    const COLUMNS: usize = 64;
    const BYTES: usize = 36;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 16;
    const BITS: u32 = 6;
    type Head<S: Simd> = Nvfp4Head<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 4.
        unsafe {
            let packed = lanes.word::<S>(4, word / 4 * 2 + word % 2);
            S::lookup(&mxfp4::CODES, bits::extract::<S>(packed, word / 2 % 2 * 4, 0, 4))
        }
    }
}
