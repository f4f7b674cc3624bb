//! Products with few tokens: codes go straight from the tiles into them.
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

use std::marker::PhantomData;

use super::inner::{PARTS, Words, accumulate, prefetch};
use crate::{
    backend::cpu::kernels::quantize::{Activations, CHUNK},
    quant::{Lanes, ROWS, Tile},
    simd::Simd,
};

/// The products of `N` tokens from `token` on, decoding as it goes.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, T: Tile, const N: usize>(
    tiles: *const u8,
    x: &Activations,
    token: usize,
    c: *mut f32,
) {
    let tile_bytes = ROWS * T::BYTES;
    let groups = T::COLUMNS / T::GROUP;
    // SAFETY: tiles and tokens are as many as the caller says.
    unsafe {
        let mut acc = [[S::splat(0.0); N]; PARTS];
        for index in 0..x.columns / T::COLUMNS {
            let tile = tiles.add(index * tile_bytes);
            let column = index * T::COLUMNS;
            let chunk = x.chunk(column / CHUNK, token);
            for part in 0..ROWS / S::WIDTH {
                let lanes = Lanes { tile, row: part * S::WIDTH };
                let head = T::head::<S>(lanes);
                for group in 0..groups {
                    if part == 0 {
                        prefetch::<S, T>(tile, group);
                    }
                    let (scale, min) = T::scale_min::<S>(&head, group);
                    let words = TileWords::<T> { lanes, first: group * (T::GROUP / 4), format: PhantomData };
                    let column = column % CHUNK + group * T::GROUP;
                    accumulate::<S, _, N>(&words, [scale, min], &chunk, column, &mut acc[part]);
                }
            }
        }
        for part in 0..ROWS / S::WIDTH {
            for t in 0..N {
                S::store(c.add((token + t) * ROWS + part * S::WIDTH), acc[part][t]);
            }
        }
    }
}

struct TileWords<T> {
    lanes: Lanes,
    first: usize,
    format: PhantomData<T>,
}

impl<T: Tile> Words for TileWords<T> {
    const GROUP: usize = T::GROUP;
    const BITS: u32 = T::BITS;

    #[inline(always)]
    unsafe fn word<S: Simd>(&self, index: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { T::codes::<S>(self.lanes, self.first + index) }
    }
}
