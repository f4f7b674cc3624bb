//! IQ2_XXS: 256 weights in 66 bytes, in scale groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 64 | `groups` | 8 bytes per group: see below |
//!
//! weight i = d * (scale(i / 32) + 1/2) / 4 * VALUES[level(i)] * sign(i)
//!
//! A group has four bytes, each with the index of a grid point of 8 weights; then a word with four
//! times 7 bits for the signs of 8 weights, and 4 bits of scale. The number of negative weights of
//! eight is even, so the eighth sign is not stored.
//!
//! Source: GGUF type 16, ggml's `block_iq2_xxs`.

use super::{
    Lanes, Tile, bits, grid, grids,
    heads::{HalfScale, HalfScaleHead},
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [2, 64];

static GRID: [u32; 256] = grid::eight_levels(grids::IQ2_XXS);

/// Value of each level, also for `IQ2_XS` and `IQ2_S`.
pub(super) const VALUES: [u8; 3] = [8, 25, 43];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, groups] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let word = bits::u32(groups, 2 * group + 1);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        for (i, out) in out.iter_mut().enumerate() {
            let point = GRID[usize::from(groups[8 * group + i / 8])];
            let signs = grid::even_signs(word >> (7 * (i / 8)));
            *out = scale * f32::from(VALUES[grid::level(point, i % 8)]) * grid::sign(signs, i % 8);
        }
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[64, 2],
    split,
    decoder: include_str!("../../kernels/format/iq2_xxs.wgsl"),
    scales: 1,
    table: &GRID,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, groups] = bits::split(block, FIELDS);
    planes::copy([groups, d], planes);
}

/// The values plus 128 or minus 128, as unsigned codes of a tile, also for `IQ2_XS` and `IQ2_S`.
pub(super) static CODES: [u8; 16] = grid::signed_codes(VALUES, 128);

/// The tile decoder.
#[derive(Clone, Copy)]
pub(crate) struct Iq2Xxs;

impl HalfScale for Iq2Xxs {
    const STEP: f32 = 0.25;
    const OFFSET: f32 = 128.0;

    /// # Safety: as [`HalfScale::scale`].
    #[inline(always)]
    unsafe fn scale<S: Simd>(lanes: Lanes, group: usize) -> S::I {
        // SAFETY: by the caller; the groups start at byte 2.
        unsafe { S::shr(lanes.word::<S>(2, 2 * group + 1), 28) }
    }
}

impl Tile for Iq2Xxs {
    const COLUMNS: usize = 256;
    const BYTES: usize = 66;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
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
        let (group, byte) = (pair / 4, pair % 4 * 8);
        // SAFETY: by the caller; the groups start at byte 2. An index of eight bits is within the
        // grid.
        unsafe {
            let index = grid::field::<S>(lanes.word::<S>(2, 2 * group), byte, 8);
            let signs = grid::even_signs_at::<S>(lanes.word::<S>(2, 2 * group + 1), pair % 4 * 7);
            let signs = grid::spread_signs::<S>(signs);
            grid::codes_of::<S>(&CODES, S::or(S::gather(&GRID, index), signs))
        }
    }
}
