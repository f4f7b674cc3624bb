//! IQ1_S: 256 weights in 50 bytes, in scale groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 32 | `low` | one byte for 8 weights: low bits of the index of a grid point |
//! | 16 | `high` | 16 bits per group: 3 high bits of each of 4 indices, 3 of scale, 1 of shift |
//!
//! weight i = d * (2 * scale(i / 32) + 1) * (level(i) - 1 + shift(i / 32)), with a shift of 1/8, or
//! -1/8 if its bit is set
//!
//! Source: GGUF type 19, ggml's `block_iq1_s`.

use super::{
    Lanes, Tile, TileHead, bits, grid, grids,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 3] = [2, 32, 16];

/// The points, also for `IQ1_M`.
pub(super) static GRID: [u32; 2048] = grid::eight_levels(grids::IQ1);

/// Returns a level less 1, plus the shift, also for `IQ1_M`.
pub(super) fn shifted(level: usize, is_less: bool) -> f32 {
    level as f32 - 1.0 + if is_less { -0.125 } else { 0.125 }
}

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, low, high] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let group = bits::u32(high, i / 64) >> (i / 32 % 2 * 16);
        let scale = d * (2 * ((group >> 12) & 7) + 1) as f32;
        let index = usize::from(low[i / 8]) | (((group >> (3 * (i / 8 % 4))) as usize & 7) << 8);
        *out = scale * shifted(grid::level(GRID[index], i % 8), (group >> 15) & 1 == 1);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[32, 16, 2],
    split,
    decoder: include_str!("../../kernels/format/iq1_s.wgsl"),
    scales: 1,
    table: &GRID,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, low, high] = bits::split(block, FIELDS);
    planes::copy([low, high, d], planes);
}

/// Scales and minima of a tile's rows.
#[derive(Clone, Copy)]
pub(crate) struct Iq1SHead<S: Simd> {
    d: S::F,
    twice: S::F,
    lanes: Lanes,
}

impl<S: Simd> TileHead<S> for Iq1SHead<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller.
        unsafe {
            let d = lanes.f16::<S>(0);
            Self { d, twice: S::add(d, d), lanes }
        }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller; `high` is at byte 34.
        unsafe {
            let (high, from) = (self.lanes.word::<S>(34, group / 2), group % 2 * 16);
            let scale = S::fma(self.twice, bits::unsigned::<S>(high, from + 12, 3), self.d);
            let is_less = bits::unsigned::<S>(high, from + 15, 1);
            (scale, S::mul(scale, S::fma(is_less, S::splat(0.25), S::splat(0.875))))
        }
    }
}

/// The tile decoder.
pub(crate) struct Iq1S;

impl Tile for Iq1S {
    const COLUMNS: usize = 256;
    const BYTES: usize = 50;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 2;
    type Head<S: Simd> = Iq1SHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { Self::pair::<S>(lanes, word / 2)[word % 2] }
    }

    /// # Safety: as [`Tile::pair`].
    #[inline(always)]
    unsafe fn pair<S: Simd>(lanes: Lanes, pair: usize) -> [S::I; 2] {
        let eight = pair % 4;
        // SAFETY: by the caller; `low` is at byte 2, `high` at byte 34. An index of eleven bits is
        // within the grid.
        unsafe {
            let low = grid::field::<S>(lanes.word::<S>(2, pair / 4), eight * 8, 8);
            let high = grid::field::<S>(lanes.word::<S>(34, pair / 8), pair / 4 % 2 * 16 + eight * 3, 3);
            let point = S::gather(&GRID, S::or(low, S::shl(high, 8)));
            [bits::extract::<S>(point, 0, 0, 4), bits::extract::<S>(point, 4, 0, 4)]
        }
    }
}
