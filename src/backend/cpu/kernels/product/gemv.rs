//! Multiplies with few tokens: codes go straight from the tiles into the products.
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

use std::marker::PhantomData;

use super::inner::{GroupCodes, MAX_VECTORS, accumulate, prefetch};
use crate::{
    backend::cpu::kernels::quantize::{CHUNK, Q8Activations},
    quant::{Lanes, ROWS, Tile},
    simd::Simd,
};

/// Writes the products of a group of rows with `N` tokens, from `token` on, to their rows of `c`.
///
/// # Safety
/// As [`super::group_product`]: `tiles` is the group's, `x` has the tokens, `c` has their rows.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, T: Tile, const N: usize>(
    tiles: *const u8,
    x: &Q8Activations,
    token: usize,
    c: *mut f32,
) {
    let tile_bytes = ROWS * T::BYTES;
    let groups = T::COLUMNS / T::GROUP;
    // SAFETY: by the caller.
    unsafe {
        let mut acc = [[S::splat(0.0); N]; MAX_VECTORS];
        for index in 0..x.columns / T::COLUMNS {
            let tile = tiles.add(index * tile_bytes);
            let column = index * T::COLUMNS;
            let chunk = x.chunk(column / CHUNK, token);
            for vector in 0..ROWS / S::WIDTH {
                let lanes = Lanes { tile, row: vector * S::WIDTH };
                let head = T::head::<S>(lanes);
                for group in 0..groups {
                    if vector == 0 {
                        prefetch::<S, T>(tile, group);
                    }
                    let (scale, min) = T::scale_min::<S>(&head, group);
                    let codes = TileCodes::<T> { lanes, first: group * (T::GROUP / 4), format: PhantomData };
                    let column = column % CHUNK + group * T::GROUP;
                    accumulate::<S, _, N>(&codes, scale, min, &chunk, column, &mut acc[vector]);
                }
            }
        }
        for vector in 0..ROWS / S::WIDTH {
            for t in 0..N {
                S::store(c.add((token + t) * ROWS + vector * S::WIDTH), acc[vector][t]);
            }
        }
    }
}

/// The codes of a group of columns in a tile.
struct TileCodes<T> {
    lanes: Lanes,
    /// The first word of the group in the tile.
    first: usize,
    format: PhantomData<T>,
}

impl<T: Tile> GroupCodes for TileCodes<T> {
    const GROUP: usize = T::GROUP;
    const BITS: u32 = T::BITS;

    /// # Safety: as [`GroupCodes::pair`].
    #[inline(always)]
    unsafe fn pair<S: Simd>(&self, index: usize) -> [S::I; 2] {
        // SAFETY: by the caller.
        unsafe { T::pair::<S>(self.lanes, self.first / 2 + index) }
    }
}
