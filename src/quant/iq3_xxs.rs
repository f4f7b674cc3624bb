//! IQ3_XXS: 256 weights in 98 bytes, in scale groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 64 | `points` | one byte for 4 weights: index of a grid point |
//! | 32 | `signs` | 4 bytes per group: 7 bits for the signs of 8 weights, then 4 bits of scale |
//!
//! weight i = d * (scale(i / 32) + 1/2) / 2 * VALUES[level(i)] * sign(i)
//!
//! The number of negative weights of eight is even, so the eighth sign is not stored.
//!
//! Source: GGUF type 18, ggml's `block_iq3_xxs`.

use super::{
    Lanes, Tile, bits, grid, grids,
    heads::{HalfScale, HalfScaleHead},
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 3] = [2, 64, 32];

static GRID: [u32; 256] = grid::four_levels(grids::IQ3_XXS);

/// Value of each level.
const VALUES: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, points, signs] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let word = bits::u32(signs, group);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        for (i, out) in out.iter_mut().enumerate() {
            let point = GRID[usize::from(points[8 * group + i / 4])];
            let signs = grid::even_signs(word >> (7 * (i / 8)));
            *out = scale * f32::from(VALUES[grid::level(point, i % 4)]) * grid::sign(signs, i % 8);
        }
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[64, 32, 2],
    split,
    decoder: include_str!("../../kernels/format/iq3_xxs.wgsl"),
    scales: 1,
    table: &GRID_VALUES,
};

/// Points of values, one per byte.
static GRID_VALUES: [u32; 256] = grid::with_values(GRID, VALUES);

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, points, signs] = bits::split(block, FIELDS);
    planes::copy([points, signs, d], planes);
}

/// The values plus 128 or minus 128, as unsigned codes of a tile.
static CODES: [u8; 16] = grid::signed_codes(VALUES, 128);

/// The tile decoder.
#[derive(Clone, Copy)]
pub(crate) struct Iq3Xxs;

impl HalfScale for Iq3Xxs {
    const STEP: f32 = 0.5;
    const OFFSET: f32 = 128.0;

    /// # Safety: as [`HalfScale::scale`].
    #[inline(always)]
    unsafe fn scale<S: Simd>(lanes: Lanes, group: usize) -> S::I {
        // SAFETY: by the caller; the signs start at byte 66.
        unsafe { S::shr(lanes.word::<S>(66, group), 28) }
    }
}

impl Tile for Iq3Xxs {
    const COLUMNS: usize = 256;
    const BYTES: usize = 98;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 8;
    type Head<S: Simd> = HalfScaleHead<S, Self>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the points start at byte 2, the signs at byte 66. An index of
        // eight bits is within the grid.
        unsafe {
            let index = grid::field::<S>(lanes.word::<S>(2, word / 4), word % 4 * 8, 8);
            let signs = grid::even_signs_at::<S>(lanes.word::<S>(66, word / 8), word / 2 % 4 * 7);
            let signs = grid::spread_signs::<S>(signs);
            let signs = bits::extract::<S>(signs, word % 2 * 4 + 3, 3, 1);
            S::lookup(&CODES, S::or(S::gather(&GRID, index), signs))
        }
    }
}
