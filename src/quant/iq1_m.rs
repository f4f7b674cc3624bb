//! IQ1_M: 256 weights in 56 bytes, in scale groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 32 | `low` | one byte for 8 weights: low bits of the index of a grid point |
//! | 16 | `high` | 4 bits for 8 weights: 3 high bits of the index, 1 of shift |
//! | 8 | `scales` | 16 bits for 64 weights: 3 bits for each of 4 groups, 4 bits of `d` |
//!
//! weight i = d * (2 * scale(i / 16) + 1) * (level(i) - 1 + shift(i / 8)), with a shift of 1/8, or
//! -1/8 if its bit is set, and an f16 scale `d` whose low four bits come first
//!
//! Source: GGUF type 29, ggml's `block_iq1_m`.

use half::f16;

use super::{
    Lanes, Tile, TileHead, bits, grid,
    iq1_s::{GRID, shifted},
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 3] = [32, 16, 8];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [low, high, scales] = bits::split(block, FIELDS);
    let d = (0..4).fold(0, |d, i| d | (u16::from(scales[2 * i + 1] >> 4) << (4 * i)));
    let d = f16::from_bits(d).to_f32();
    for (i, out) in out.iter_mut().enumerate() {
        let scale = (bits::u32(scales, i / 128) >> (i / 64 % 2 * 16 + i / 16 % 4 * 3)) & 7;
        let four = bits::code(high, 4, 1, i / 8);
        let index = usize::from(low[i / 8]) | (usize::from(four & 7) << 8);
        *out = d * (2 * scale + 1) as f32 * shifted(grid::level(GRID[index], i % 8), four >= 8);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[32, 16, 8],
    split,
    decoder: include_str!("../../kernels/format/iq1_m.wgsl"),
    scales: 2,
    table: &GRID,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    planes::copy(bits::split(block, FIELDS), planes);
}

/// Scales and minima of a tile's rows.
#[derive(Clone, Copy)]
pub(crate) struct Iq1MHead<S: Simd> {
    /// `d / 8`
    eighth: S::F,
    /// `d / 4`
    quarter: S::F,
    lanes: Lanes,
}

impl<S: Simd> TileHead<S> for Iq1MHead<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller; `scales` is at byte 48.
        unsafe {
            let [first, second] = [lanes.word::<S>(48, 0), lanes.word::<S>(48, 1)];
            let low = S::or(grid::field::<S>(first, 12, 4), S::and(S::shr(first, 24), S::splat_i(0xf0)));
            let high = S::and(S::shr(second, 4), S::splat_i(0xf00));
            let magnitude = S::or(S::or(low, high), S::and(S::shr(second, 16), S::splat_i(0x7000)));
            let sign = S::and(second, S::splat_i(i32::MIN));
            // The exponent's bias is 15 in f16, and 127 in f32.
            let scaled = S::as_f(S::or(S::shl(magnitude, 13), sign));
            let d = S::mul(scaled, S::splat(f32::from_bits((127 + 127 - 15) << 23)));
            Self { eighth: S::mul(d, S::splat(0.125)), quarter: S::mul(d, S::splat(0.25)), lanes }
        }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller; `scales` is at byte 48.
        unsafe {
            let word = self.lanes.word::<S>(48, group / 8);
            let scale = bits::unsigned::<S>(word, group / 4 % 2 * 16 + group % 4 * 3, 3);
            let scale = S::fma(self.quarter, scale, self.eighth);
            (scale, S::mul(scale, S::splat(9.0)))
        }
    }
}

/// Eight times the level plus 2, or plus 0 with the lesser shift, as unsigned codes of a tile.
static CODES: [u8; 16] = [2, 10, 18, 0, 0, 0, 0, 0, 0, 8, 16, 0, 0, 0, 0, 0];

/// The tile decoder.
pub(crate) struct Iq1M;

impl Tile for Iq1M {
    const COLUMNS: usize = 256;
    const BYTES: usize = 56;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 16;
    const BITS: u32 = 6;
    type Head<S: Simd> = Iq1MHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { Self::pair::<S>(lanes, word / 2)[word % 2] }
    }

    /// # Safety: as [`Tile::pair`].
    #[inline(always)]
    unsafe fn pair<S: Simd>(lanes: Lanes, pair: usize) -> [S::I; 2] {
        // SAFETY: by the caller; `low` is at byte 0, `high` at byte 32. An index of eleven bits is
        // within the grid.
        unsafe {
            let low = grid::field::<S>(lanes.word::<S>(0, pair / 4), pair % 4 * 8, 8);
            let four = S::shr(lanes.word::<S>(32, pair / 8), pair as u32 % 8 * 4);
            let point = S::gather(&GRID, S::or(low, S::shl(grid::field::<S>(four, 0, 3), 8)));
            let is_less = S::and(S::sar(S::shl(four, 28), 31), S::splat_i(0x8888_8888_u32 as i32));
            grid::codes_of::<S>(&CODES, S::or(point, is_less))
        }
    }
}
