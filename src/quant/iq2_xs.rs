//! IQ2_XS: 256 weights in 74 bytes, in scale groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 64 | `points` | 16 bits for 8 weights: 9 bits of index of a grid point, 7 bits of signs |
//! | 8 | `scales` | 4 bits per group |
//!
//! weight i = d * (scale(i / 16) + 1/2) / 4 * VALUES[level(i)] * sign(i), with the values of
//! `IQ2_XXS`
//!
//! The number of negative weights of eight is even, so the eighth sign is not stored.
//!
//! Source: GGUF type 17, ggml's `block_iq2_xs`.

use super::{
    Lanes, Tile, bits, grid, grids,
    heads::{HalfScale, HalfScaleHead},
    iq2_xxs,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 3] = [2, 64, 8];

static GRID: [u32; 512] = grid::eight_levels(grids::IQ2_XS);

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, points, scales] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = d * (0.5 + f32::from(bits::code(scales, 4, 1, i / 16))) * 0.25;
        let code = bits::u32(points, i / 16) >> (i / 8 % 2 * 16);
        let value = iq2_xxs::VALUES[grid::level(GRID[code as usize & 511], i % 8)];
        *out = scale * f32::from(value) * grid::sign(grid::even_signs(code >> 9), i % 8);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[64, 8, 2],
    split,
    decoder: include_str!("../../kernels/format/iq2_xs.wgsl"),
    scales: 2,
    table: &GRID,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, points, scales] = bits::split(block, FIELDS);
    planes::copy([points, scales, d], planes);
}

/// The tile decoder.
#[derive(Clone, Copy)]
pub(crate) struct Iq2Xs;

impl HalfScale for Iq2Xs {
    const STEP: f32 = 0.25;
    const OFFSET: f32 = 128.0;

    /// # Safety: as [`HalfScale::scale`].
    #[inline(always)]
    unsafe fn scale<S: Simd>(lanes: Lanes, group: usize) -> S::I {
        // SAFETY: by the caller; the scales start at byte 66.
        unsafe { grid::field::<S>(lanes.word::<S>(66, group / 8), group % 8 * 4, 4) }
    }
}

impl Tile for Iq2Xs {
    const COLUMNS: usize = 256;
    const BYTES: usize = 74;
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
        let half = pair % 2 * 16;
        // SAFETY: by the caller; the points start at byte 2. An index of nine bits is within the
        // grid.
        unsafe {
            let points = lanes.word::<S>(2, pair / 2);
            let point = S::gather(&GRID, grid::field::<S>(points, half, 9));
            let signs = grid::spread_signs::<S>(grid::even_signs_at::<S>(points, half + 9));
            grid::codes_of::<S>(&iq2_xxs::CODES, S::or(point, signs))
        }
    }
}
