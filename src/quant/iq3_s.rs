//! IQ3_S: 256 weights in 110 bytes, in scale groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 64 | `low` | one byte for 4 weights: low bits of the index of a grid point |
//! | 8 | `high` | one bit for 4 weights: bit 8 of the index |
//! | 32 | `signs` | one bit per weight: whether it is negative |
//! | 4 | `scales` | 4 bits per group |
//!
//! weight i = d * (2 * scale(i / 32) + 1) * (2 * level(i) + 1) * sign(i)
//!
//! Source: GGUF type 21, ggml's `block_iq3_s`.

use super::{
    Lanes, Tile, bits, grid, grids,
    heads::{HalfScale, HalfScaleHead},
    planes::Planes,
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 5] = [2, 64, 8, 32, 4];

static GRID: [u32; 512] = grid::four_levels(grids::IQ3_S);

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, low, high, signs, scales] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = d * (1.0 + 2.0 * f32::from(bits::code(scales, 4, 1, i / 32)));
        let index = usize::from(low[i / 4]) | (usize::from(bits::code(high, 1, 1, i / 4)) << 8);
        let value = 2 * grid::level(GRID[index], i % 4) + 1;
        *out = scale * value as f32 * grid::sign(signs[i / 8], i % 8);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[64, 32, 12, 2],
    split,
    decoder: include_str!("../../kernels/format/iq3_s.wgsl"),
    scales: 1,
    table: &GRID_VALUES,
};

/// Points of values, one per byte.
static GRID_VALUES: [u32; 512] = grid::with_values(GRID, [1, 3, 5, 7, 9, 11, 13, 15]);

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, low, high, signs, scales] = bits::split(block, FIELDS);
    let (plane_of_high, plane_of_scales) = planes[2].split_at_mut(8);
    plane_of_high.copy_from_slice(high);
    plane_of_scales.copy_from_slice(scales);
    planes[0].copy_from_slice(low);
    planes[1].copy_from_slice(signs);
    planes[3].copy_from_slice(d);
}

/// Half the values plus 15/2, or minus half the values, as unsigned codes of a tile.
static CODES: [u8; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 4, 3, 2, 1, 0];

/// The tile decoder.
#[derive(Clone, Copy)]
pub(crate) struct Iq3S;

impl HalfScale for Iq3S {
    const STEP: f32 = 4.0;
    const OFFSET: f32 = 7.5;

    /// # Safety: as [`HalfScale::scale`].
    #[inline(always)]
    unsafe fn scale<S: Simd>(lanes: Lanes, group: usize) -> S::I {
        // SAFETY: by the caller; the scales are at byte 106.
        unsafe { grid::field::<S>(lanes.word::<S>(106, 0), 4 * group, 4) }
    }
}

impl Tile for Iq3S {
    const COLUMNS: usize = 256;
    const BYTES: usize = 110;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 4;
    type Head<S: Simd> = HalfScaleHead<S, Self>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; `low` is at byte 2, `high` at byte 66, `signs` at byte 74. An
        // index of nine bits is within the grid.
        unsafe {
            let low = grid::field::<S>(lanes.word::<S>(2, word / 4), word % 4 * 8, 8);
            let high = grid::field::<S>(lanes.word::<S>(66, word / 32), word % 32, 1);
            let point = S::gather(&GRID, S::or(low, S::shl(high, 8)));
            let signs = grid::field::<S>(lanes.word::<S>(74, word / 8), word / 2 % 4 * 8, 8);
            let signs = bits::extract::<S>(grid::spread_signs::<S>(signs), word % 2 * 4 + 3, 3, 1);
            S::lookup(&CODES, S::or(point, signs))
        }
    }
}
