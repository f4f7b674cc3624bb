//! IQ2_S: 256 weights in 82 bytes, in scale groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 32 | `low` | one byte for 8 weights: low bits of the index of a grid point |
//! | 32 | `signs` | one bit per weight: whether it is negative |
//! | 8 | `high` | two bits for 8 weights: bits 8 and 9 of the index |
//! | 8 | `scales` | 4 bits per group |
//!
//! weight i = d * (scale(i / 16) + 1/2) / 4 * VALUES[level(i)] * sign(i), with the values of
//! `IQ2_XXS`
//!
//! Source: GGUF type 22, ggml's `block_iq2_s`.

use super::{
    Lanes, Tile, bits, grid, grids,
    heads::{HalfScale, HalfScaleHead},
    iq2_xxs,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 5] = [2, 32, 32, 8, 8];

static GRID: [u32; 1024] = grid::eight_levels(grids::IQ2_S);

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, low, signs, high, scales] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = d * (0.5 + f32::from(bits::code(scales, 4, 1, i / 16))) * 0.25;
        let index = usize::from(low[i / 8]) | (usize::from(bits::code(high, 2, 1, i / 8)) << 8);
        let value = iq2_xxs::VALUES[grid::level(GRID[index], i % 8)];
        *out = scale * f32::from(value) * grid::sign(signs[i / 8], i % 8);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[32, 32, 16, 2],
    split,
    decoder: include_str!("../../kernels/format/iq2_s.wgsl"),
    scales: 2,
    table: &GRID,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let (d, rest) = block.split_at(2);
    planes::copy([&rest[..32], &rest[32..64], &rest[64..], d], planes);
}

/// The tile decoder.
#[derive(Clone, Copy)]
pub(crate) struct Iq2S;

impl HalfScale for Iq2S {
    const STEP: f32 = 0.25;
    const OFFSET: f32 = 128.0;

    /// # Safety: as [`HalfScale::scale`].
    #[inline(always)]
    unsafe fn scale<S: Simd>(lanes: Lanes, group: usize) -> S::I {
        // SAFETY: by the caller; the scales start at byte 74.
        unsafe { grid::field::<S>(lanes.word::<S>(74, group / 8), group % 8 * 4, 4) }
    }
}

impl Tile for Iq2S {
    const COLUMNS: usize = 256;
    const BYTES: usize = 82;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 16;
    const BITS: u32 = 8;
    type Head<S: Simd> = HalfScaleHead<S, Self>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { Self::pair::<S>(lanes, word / 2)[word % 2] }
    }

    /// # Safety: as [`Tile::pair`].
    #[inline(always)]
    unsafe fn pair<S: Simd>(lanes: Lanes, pair: usize) -> [S::I; 2] {
        let byte = pair % 4 * 8;
        // SAFETY: by the caller; `low` is at byte 2, `signs` at byte 34, `high` at byte 66. An
        // index of ten bits is within the grid.
        unsafe {
            let low = grid::field::<S>(lanes.word::<S>(2, pair / 4), byte, 8);
            let high = grid::field::<S>(lanes.word::<S>(66, pair / 16), pair % 16 * 2, 2);
            let point = S::gather(&GRID, S::or(low, S::shl(high, 8)));
            let signs = grid::field::<S>(lanes.word::<S>(34, pair / 4), byte, 8);
            grid::codes_of::<S>(&iq2_xxs::CODES, S::or(point, grid::spread_signs::<S>(signs)))
        }
    }
}
