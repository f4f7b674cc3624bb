//! Products with many tokens: some columns are unpacked once, into the nearest cache, and used for all tokens.
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

use std::marker::PhantomData;

use super::inner::{PARTS, Words, accumulate, prefetch, scale_sums};
use crate::{
    backend::cpu::kernels::quantize::{Activations, CHUNK, Chunk},
    quant::{Lanes, ROWS, Tile},
    simd::{MatrixUnit, Simd},
};

/// Up to 256 columns of sixteen rows, ready for products.
#[repr(align(64))]
struct Unpacked {
    /// `[columns / 4, 16]`: four codes a word.
    codes: [[u32; ROWS]; CHUNK / 4],
    /// `[columns / group, 16]`.
    scales: [[f32; ROWS]; CHUNK / 16],
    mins: [[f32; ROWS]; CHUNK / 16],
}

/// The products of all tokens, 256 columns at a time.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, T: Tile>(tiles: *const u8, x: &Activations, tokens: usize, c: *mut f32) {
    let mut unpacked =
        Unpacked { codes: [[0; ROWS]; CHUNK / 4], scales: [[0.0; ROWS]; CHUNK / 16], mins: [[0.0; ROWS]; CHUNK / 16] };
    // SAFETY: by the caller.
    unsafe {
        c.write_bytes(0, tokens * ROWS);
        S::Unit::begin(T::GROUP / 4);
        for column in (0..x.columns).step_by(CHUNK) {
            let columns = CHUNK.min(x.columns - column);
            for at in (0..columns).step_by(T::COLUMNS) {
                let tile = tiles.add((column + at) / T::COLUMNS * ROWS * T::BYTES);
                unpack::<S, T>(tile, at, &mut unpacked);
            }
            let x = |token| x.chunk(column / CHUNK, token);
            multiply_chunk::<S, T>(&unpacked, columns / T::GROUP, x, tokens, c);
        }
        S::Unit::end();
    }
}

/// Unpacks one tile to the columns from `at` on.
#[inline(always)]
unsafe fn unpack<S: Simd, T: Tile>(tile: *const u8, at: usize, to: &mut Unpacked) {
    // SAFETY: by the caller.
    unsafe {
        for row in (0..ROWS).step_by(S::WIDTH) {
            let lanes = Lanes { tile, row };
            let head = T::head::<S>(lanes);
            for group in 0..T::COLUMNS / T::GROUP {
                let (scale, min) = T::scale_min::<S>(&head, group);
                S::store(to.scales[at / T::GROUP + group].as_mut_ptr().add(row), scale);
                S::store(to.mins[at / T::GROUP + group].as_mut_ptr().add(row), min);
                if row == 0 {
                    prefetch::<S, T>(tile, group);
                }
                for word in 0..T::GROUP / 4 {
                    let word = group * (T::GROUP / 4) + word;
                    S::store_i(to.codes[at / 4 + word].as_mut_ptr().add(row).cast(), T::codes::<S>(lanes, word));
                }
            }
        }
    }
}

struct UnpackedWords<'a, T> {
    unpacked: &'a Unpacked,
    row: usize,
    first: usize,
    format: PhantomData<T>,
}

impl<T: Tile> Words for UnpackedWords<'_, T> {
    const GROUP: usize = T::GROUP;
    const BITS: u32 = T::BITS;

    #[inline(always)]
    unsafe fn word<S: Simd>(&self, index: usize) -> S::I {
        // SAFETY: the chunk has that word, by the caller.
        unsafe { S::load_i(self.unpacked.codes.as_ptr().add(self.first + index).cast::<u32>().add(self.row).cast()) }
    }
}

/// Adds the products of a chunk's groups with all tokens to `c`.
#[inline(always)]
unsafe fn multiply_chunk<S: Simd, T: Tile>(
    unpacked: &Unpacked,
    groups: usize,
    x: impl Fn(usize) -> Chunk,
    tokens: usize,
    c: *mut f32,
) {
    // SAFETY: by the caller of `multiply`.
    unsafe {
        let mut token = 0;
        let c = |token| c.add(token * ROWS);
        while S::Unit::TOKENS == 16 && token + 16 <= tokens {
            multiply_block::<S, T, 16>(unpacked, groups, &x(token), c(token));
            token += 16;
        }
        while S::Unit::TOKENS == 4 && token + 4 <= tokens {
            multiply_block::<S, T, 4>(unpacked, groups, &x(token), c(token));
            token += 4;
        }
        // Eight tokens' sums fit the registers of a wide instruction set, and share each load of codes.
        while S::WIDTH == 16 && token + 8 <= tokens {
            multiply_some::<S, T, 8>(unpacked, groups, &x(token), c(token));
            token += 8;
        }
        while token + 4 <= tokens {
            multiply_some::<S, T, 4>(unpacked, groups, &x(token), c(token));
            token += 4;
        }
        while token < tokens {
            multiply_some::<S, T, 1>(unpacked, groups, &x(token), c(token));
            token += 1;
        }
    }
}

/// Adds the products with the first `N` tokens of `x`.
#[inline(always)]
unsafe fn multiply_some<S: Simd, T: Tile, const N: usize>(unpacked: &Unpacked, groups: usize, x: &Chunk, c: *mut f32) {
    // SAFETY: by the caller of `multiply`.
    unsafe {
        for row in (0..ROWS).step_by(S::WIDTH) {
            let mut acc = load_sums::<S, N>(c, row);
            for group in 0..groups {
                let scale = S::load(unpacked.scales[group].as_ptr().add(row));
                let min = S::load(unpacked.mins[group].as_ptr().add(row));
                let words = UnpackedWords::<T> { unpacked, row, first: group * (T::GROUP / 4), format: PhantomData };
                accumulate::<S, _, N>(&words, [scale, min], x, group * T::GROUP, &mut acc);
            }
            store_sums::<S, N>(acc, c, row);
        }
    }
}

/// As [`multiply_some`], with the integer products made by the matrix unit, which takes `N` tokens at a time. It works a
/// group ahead of the vectors that scale its sums.
#[inline(always)]
unsafe fn multiply_block<S: Simd, T: Tile, const N: usize>(unpacked: &Unpacked, groups: usize, x: &Chunk, c: *mut f32) {
    let mut sums = Sums([[[0; ROWS]; N]; 2]);
    // SAFETY: by the caller of `multiply`; `begin` was told the size of a group; prefetches may point anywhere.
    unsafe {
        let mut acc = [[S::splat(0.0); N]; PARTS];
        for part in 0..ROWS / S::WIDTH {
            acc[part] = load_sums::<S, N>(c, part * S::WIDTH);
        }
        unit_product::<S, T, N>(unpacked, 0, x, &mut sums);
        for group in 0..groups {
            if group + 1 < groups {
                unit_product::<S, T, N>(unpacked, group + 1, x, &mut sums);
            }
            for line in 0..N * T::GROUP / 64 {
                S::prefetch(x.codes.cast::<u8>().wrapping_add(N * (CHUNK + group * T::GROUP) + 64 * line));
            }
            for part in 0..ROWS / S::WIDTH {
                let row = part * S::WIDTH;
                let scale = S::load(unpacked.scales[group].as_ptr().add(row));
                let min = S::load(unpacked.mins[group].as_ptr().add(row));
                let mut totals = [S::splat_i(0); N];
                for t in 0..N {
                    totals[t] = S::load_i(sums.0[group % 2][t].as_ptr().add(row).cast());
                }
                let form = [T::GROUP, T::BITS as usize];
                scale_sums::<S, N>(form, totals, [scale, min], x, group * T::GROUP, &mut acc[part]);
            }
        }
        for part in 0..ROWS / S::WIDTH {
            store_sums::<S, N>(acc[part], c, part * S::WIDTH);
        }
    }
}

/// The matrix unit's sums of one group and the one before it, `[2, tokens, 16]`.
#[repr(align(64))]
struct Sums<const N: usize>([[[i32; ROWS]; N]; 2]);

#[inline(always)]
unsafe fn unit_product<S: Simd, T: Tile, const N: usize>(
    unpacked: &Unpacked,
    group: usize,
    x: &Chunk,
    sums: &mut Sums<N>,
) {
    let words = T::GROUP / 4;
    let codes = unpacked.codes[group * words..].as_ptr().cast();
    let sums = sums.0[group % 2].as_mut_ptr().cast();
    // SAFETY: by the caller of `multiply`.
    unsafe { S::Unit::multiply(T::BITS, words, codes, x.codes.add(group * T::GROUP), CHUNK, sums) };
}

#[inline(always)]
unsafe fn load_sums<S: Simd, const N: usize>(c: *const f32, row: usize) -> [S::F; N] {
    // SAFETY: by the caller of `multiply`.
    unsafe {
        let mut acc = [S::splat(0.0); N];
        for t in 0..N {
            acc[t] = S::load(c.add(t * ROWS + row));
        }
        acc
    }
}

#[inline(always)]
unsafe fn store_sums<S: Simd, const N: usize>(acc: [S::F; N], c: *mut f32, row: usize) {
    for t in 0..N {
        // SAFETY: by the caller of `multiply`.
        unsafe { S::store(c.add(t * ROWS + row), acc[t]) };
    }
}
