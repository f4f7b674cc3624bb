//! Multiplies with many tokens: a chunk of columns is unpacked into the first-level cache for all
//! of them.
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

use std::marker::PhantomData;

use super::inner::{GroupCodes, MAX_VECTORS, accumulate, prefetch, scale_sums};
use crate::{
    backend::cpu::kernels::quantize::{CHUNK, Q8Activations, Q8Chunk},
    quant::{Lanes, ROWS, Tile},
    simd::{MatrixUnit, Simd},
};

/// A chunk of columns of sixteen rows, unpacked.
#[repr(align(64))]
struct UnpackedChunk {
    /// `[columns / 4, 16]`: four codes a word.
    codes: [[u32; ROWS]; CHUNK / 4],
    /// `[columns / group, 16]`.
    scales: [[f32; ROWS]; CHUNK / 16],
    /// `[columns / group, 16]`.
    mins: [[f32; ROWS]; CHUNK / 16],
}

/// Writes the products of a group of rows with all tokens to `c`.
///
/// # Safety
/// As [`super::group_product`]: `tiles` is the group's, `x` has the tokens, `c` has their rows.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, T: Tile>(tiles: *const u8, x: &Q8Activations, tokens: usize, c: *mut f32) {
    let mut unpacked = UnpackedChunk {
        codes: [[0; ROWS]; CHUNK / 4],
        scales: [[0.0; ROWS]; CHUNK / 16],
        mins: [[0.0; ROWS]; CHUNK / 16],
    };
    // SAFETY: by the caller.
    unsafe {
        c.write_bytes(0, tokens * ROWS);
        S::Unit::begin(T::GROUP / 4);
        for column in (0..x.columns).step_by(CHUNK) {
            let columns = CHUNK.min(x.columns - column);
            for within in (0..columns).step_by(T::COLUMNS) {
                let tile = tiles.add((column + within) / T::COLUMNS * ROWS * T::BYTES);
                unpack::<S, T>(tile, within, &mut unpacked);
            }
            let x = |token| x.chunk(column / CHUNK, token);
            multiply_chunk::<S, T>(&unpacked, columns / T::GROUP, x, tokens, c);
        }
        S::Unit::end();
    }
}

/// Unpacks a tile to the columns from `column` of the chunk on.
///
/// # Safety
/// The tile is readable, its columns are within the chunk, and the machine has `S`.
#[inline(always)]
unsafe fn unpack<S: Simd, T: Tile>(tile: *const u8, column: usize, to: &mut UnpackedChunk) {
    // SAFETY: by the caller.
    unsafe {
        for row in (0..ROWS).step_by(S::WIDTH) {
            let lanes = Lanes { tile, row };
            let head = T::head::<S>(lanes);
            for group in 0..T::COLUMNS / T::GROUP {
                let (scale, min) = T::scale_min::<S>(&head, group);
                S::store(to.scales[column / T::GROUP + group].as_mut_ptr().add(row), scale);
                S::store(to.mins[column / T::GROUP + group].as_mut_ptr().add(row), min);
                if row == 0 {
                    prefetch::<S, T>(tile, group);
                }
                for word in 0..T::GROUP / 4 {
                    let word = group * (T::GROUP / 4) + word;
                    S::store_i(to.codes[column / 4 + word].as_mut_ptr().add(row).cast(), T::codes::<S>(lanes, word));
                }
            }
        }
    }
}

/// The codes of a group of columns in an unpacked chunk.
struct UnpackedCodes<'a, T> {
    unpacked: &'a UnpackedChunk,
    /// The first row of the vector.
    row: usize,
    /// The first word of the group in the chunk.
    first: usize,
    format: PhantomData<T>,
}

impl<T: Tile> GroupCodes for UnpackedCodes<'_, T> {
    const GROUP: usize = T::GROUP;
    const BITS: u32 = T::BITS;

    /// # Safety: as [`GroupCodes::word`].
    #[inline(always)]
    unsafe fn word<S: Simd>(&self, index: usize) -> S::I {
        // SAFETY: by the caller, the chunk has the word.
        unsafe { S::load_i(self.unpacked.codes.as_ptr().add(self.first + index).cast::<u32>().add(self.row).cast()) }
    }
}

/// Adds the products of the chunk's groups with all tokens to `c`.
///
/// # Safety
/// As [`multiply`]; `unpacked` has the groups, and `x` returns the chunk from a token on.
#[inline(always)]
unsafe fn multiply_chunk<S: Simd, T: Tile>(
    unpacked: &UnpackedChunk,
    groups: usize,
    x: impl Fn(usize) -> Q8Chunk,
    tokens: usize,
    c: *mut f32,
) {
    // SAFETY: by the caller.
    unsafe {
        let mut token = 0;
        let c = |token| c.add(token * ROWS);
        while S::Unit::TOKENS == 16 && token + 16 <= tokens {
            multiply_on_unit::<S, T, 16>(unpacked, groups, &x(token), c(token));
            token += 16;
        }
        while S::Unit::TOKENS == 4 && token + 4 <= tokens {
            multiply_on_unit::<S, T, 4>(unpacked, groups, &x(token), c(token));
            token += 4;
        }
        // The sums of eight tokens fit the registers of a wide instruction set, and share each load
        // of codes.
        while S::WIDTH == 16 && token + 8 <= tokens {
            multiply_vectors::<S, T, 8>(unpacked, groups, &x(token), c(token));
            token += 8;
        }
        while token + 4 <= tokens {
            multiply_vectors::<S, T, 4>(unpacked, groups, &x(token), c(token));
            token += 4;
        }
        while token < tokens {
            multiply_vectors::<S, T, 1>(unpacked, groups, &x(token), c(token));
            token += 1;
        }
    }
}

/// Adds the products with the first `N` tokens of `x` to `c`.
///
/// # Safety
/// As [`multiply`]; `unpacked` has the groups, `x` and `c` have `N` tokens.
#[inline(always)]
unsafe fn multiply_vectors<S: Simd, T: Tile, const N: usize>(
    unpacked: &UnpackedChunk,
    groups: usize,
    x: &Q8Chunk,
    c: *mut f32,
) {
    // SAFETY: by the caller.
    unsafe {
        for row in (0..ROWS).step_by(S::WIDTH) {
            let mut acc = load_sums::<S, N>(c, row);
            for group in 0..groups {
                let scale = S::load(unpacked.scales[group].as_ptr().add(row));
                let min = S::load(unpacked.mins[group].as_ptr().add(row));
                let codes = UnpackedCodes::<T> { unpacked, row, first: group * (T::GROUP / 4), format: PhantomData };
                accumulate::<S, _, N>(&codes, scale, min, x, group * T::GROUP, &mut acc);
            }
            store_sums::<S, N>(acc, c, row);
        }
    }
}

/// Computes [`multiply_vectors`] with the integer products of the matrix unit, which takes `N`
/// tokens at a time and works one group ahead of the vectors that scale its sums.
///
/// # Safety
/// As [`multiply_vectors`]; `S::Unit` takes `N` tokens and has begun with the words of a group.
#[inline(always)]
unsafe fn multiply_on_unit<S: Simd, T: Tile, const N: usize>(
    unpacked: &UnpackedChunk,
    groups: usize,
    x: &Q8Chunk,
    c: *mut f32,
) {
    let mut sums = UnitSums([[[0; ROWS]; N]; 2]);
    // SAFETY: by the caller; prefetches may name any address.
    unsafe {
        let mut acc = [[S::splat(0.0); N]; MAX_VECTORS];
        for vector in 0..ROWS / S::WIDTH {
            acc[vector] = load_sums::<S, N>(c, vector * S::WIDTH);
        }
        unit_product::<S, T, N>(unpacked, 0, x, &mut sums);
        for group in 0..groups {
            if group + 1 < groups {
                unit_product::<S, T, N>(unpacked, group + 1, x, &mut sums);
            }
            for line in 0..N * T::GROUP / 64 {
                S::prefetch(x.q8.cast::<u8>().wrapping_add(N * (CHUNK + group * T::GROUP) + 64 * line));
            }
            for vector in 0..ROWS / S::WIDTH {
                let row = vector * S::WIDTH;
                let scale = S::load(unpacked.scales[group].as_ptr().add(row));
                let min = S::load(unpacked.mins[group].as_ptr().add(row));
                let mut totals = [S::splat_i(0); N];
                for t in 0..N {
                    totals[t] = S::load_i(sums.0[group % 2][t].as_ptr().add(row).cast());
                }
                scale_sums::<S, UnpackedCodes<'_, T>, N>(totals, scale, min, x, group * T::GROUP, &mut acc[vector]);
            }
        }
        for vector in 0..ROWS / S::WIDTH {
            store_sums::<S, N>(acc[vector], c, vector * S::WIDTH);
        }
    }
}

/// The sums of the matrix unit for a group and the one before it, `[2, tokens, 16]`.
#[repr(align(64))]
struct UnitSums<const N: usize>([[[i32; ROWS]; N]; 2]);

/// Computes the integer sums of a group with `N` tokens.
///
/// # Safety
/// As [`multiply_on_unit`], and the chunk has the group.
#[inline(always)]
unsafe fn unit_product<S: Simd, T: Tile, const N: usize>(
    unpacked: &UnpackedChunk,
    group: usize,
    x: &Q8Chunk,
    sums: &mut UnitSums<N>,
) {
    let words = T::GROUP / 4;
    let codes = unpacked.codes[group * words..].as_ptr().cast();
    let sums = sums.0[group % 2].as_mut_ptr().cast();
    // SAFETY: by the caller.
    unsafe { S::Unit::multiply(T::BITS, words, codes, x.q8.add(group * T::GROUP), CHUNK, sums) };
}

/// Loads the sums of `N` tokens for the rows of the vector at `row`.
///
/// # Safety
/// `c` is readable for `N * 16` floats, `row + S::WIDTH` is at most 16, and the machine has `S`.
#[inline(always)]
unsafe fn load_sums<S: Simd, const N: usize>(c: *const f32, row: usize) -> [S::F; N] {
    // SAFETY: by the caller.
    unsafe {
        let mut acc = [S::splat(0.0); N];
        for t in 0..N {
            acc[t] = S::load(c.add(t * ROWS + row));
        }
        acc
    }
}

/// Stores the sums of `N` tokens for the rows of the vector at `row`.
///
/// # Safety
/// As [`load_sums`], for writing.
#[inline(always)]
unsafe fn store_sums<S: Simd, const N: usize>(acc: [S::F; N], c: *mut f32, row: usize) {
    for t in 0..N {
        // SAFETY: by the caller.
        unsafe { S::store(c.add(t * ROWS + row), acc[t]) };
    }
}
