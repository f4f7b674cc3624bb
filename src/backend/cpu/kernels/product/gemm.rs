//! Multiplies with many tokens: a chunk of columns is unpacked into the first-level cache for all
//! of them.
//!
//! Unpacking depends on the format of the matrix. The product of an unpacked chunk depends only on
//! the columns of a scale group, and on few instruction sets on the bits of codes. It is therefore
//! generic over these numbers instead of the format, and compiled once for all formats that have
//! them in common.
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

use super::inner::{GroupCodes, MAX_VECTORS, accumulate, prefetch, scale_sums};
use crate::{
    backend::cpu::kernels::quantize::{CHUNK, Q8Activations, Q8Chunk},
    quant::{Lanes, ROWS, Tile},
    simd::{MatrixUnit, Simd, SimdKernel},
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
            let product = ChunkProduct { unpacked: &unpacked, groups: columns / T::GROUP, x, column, tokens, c };
            multiply_chunk::<S, T>(product);
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
                for pair in 0..T::GROUP / 8 {
                    let pair = group * (T::GROUP / 8) + pair;
                    for (half, codes) in T::pair::<S>(lanes, pair).into_iter().enumerate() {
                        S::store_i(to.codes[column / 4 + 2 * pair + half].as_mut_ptr().add(row).cast(), codes);
                    }
                }
            }
        }
    }
}

/// The codes of a group of columns in an unpacked chunk.
struct UnpackedCodes<'a, const GROUP: usize, const BITS: u32> {
    unpacked: &'a UnpackedChunk,
    /// The first row of the vector.
    row: usize,
    /// The first word of the group in the chunk.
    first: usize,
}

impl<const GROUP: usize, const BITS: u32> GroupCodes for UnpackedCodes<'_, GROUP, BITS> {
    const GROUP: usize = GROUP;
    const BITS: u32 = BITS;

    /// # Safety: as [`GroupCodes::pair`].
    #[inline(always)]
    unsafe fn pair<S: Simd>(&self, index: usize) -> [S::I; 2] {
        // SAFETY: by the caller, the chunk has the words.
        unsafe {
            let word = |word: usize| self.unpacked.codes.as_ptr().add(word).cast::<u32>().add(self.row).cast();
            [S::load_i(word(self.first + 2 * index)), S::load_i(word(self.first + 2 * index + 1))]
        }
    }
}

/// Adds the products of a chunk's groups with all tokens to the results.
///
/// # Safety
/// As [`multiply`]; `product` has its operands.
#[inline(always)]
unsafe fn multiply_chunk<S: Simd, T: Tile>(product: ChunkProduct<'_>) {
    const { assert!(matches!((T::GROUP, dot_bits::<S>(T::BITS)), (16, 4 | 6 | 8) | (32, 4 | 5 | 8))) };
    // The conditions are constants: of these functions a format compiles only the one that it uses.
    // SAFETY: by the caller.
    unsafe {
        if const { T::GROUP == 16 && dot_bits::<S>(T::BITS) == 4 } {
            S::call(CodedProduct::<16, 4>(product));
        } else if const { T::GROUP == 16 && dot_bits::<S>(T::BITS) == 8 } {
            S::call(CodedProduct::<16, 8>(product));
        } else if const { T::GROUP == 16 } {
            S::call(CodedProduct::<16, 6>(product));
        } else if const { dot_bits::<S>(T::BITS) == 4 } {
            S::call(CodedProduct::<32, 4>(product));
        } else if const { dot_bits::<S>(T::BITS) == 5 } {
            S::call(CodedProduct::<32, 5>(product));
        } else {
            S::call(CodedProduct::<32, 8>(product));
        }
    }
}

/// Returns the least bits, from 4 on, of codes that `S` multiplies by the same instructions as
/// codes of `bits` bits.
const fn dot_bits<S: Simd>(bits: u32) -> u32 {
    match bits {
        8 if S::SIGNED_BYTES => 8,
        5..8 if S::SHORT_SUMS => bits,
        _ => 4,
    }
}

/// The operands of the product of an unpacked chunk with all tokens.
struct ChunkProduct<'a> {
    unpacked: &'a UnpackedChunk,
    /// Scale groups of a row in the chunk.
    groups: usize,
    x: &'a Q8Activations,
    /// The first column of the chunk.
    column: usize,
    tokens: usize,
    /// `[tokens, 16]`.
    c: *mut f32,
}

/// The product of a chunk whose scale groups have `GROUP` columns, and whose codes have `BITS` bits
/// as [`dot_bits`] counts them. Its `run` requires what [`multiply`] does.
struct CodedProduct<'a, const GROUP: usize, const BITS: u32>(ChunkProduct<'a>);

impl<const GROUP: usize, const BITS: u32> SimdKernel for CodedProduct<'_, GROUP, BITS> {
    /// # Safety: as [`multiply`].
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let ChunkProduct { unpacked, groups, x, column, tokens, c } = self.0;
        let mut token = 0;
        let x = |token| x.chunk(column / CHUNK, token);
        // SAFETY: by the caller.
        unsafe {
            let c = |token| c.add(token * ROWS);
            while S::Unit::TOKENS == 16 && token + 16 <= tokens {
                multiply_on_unit::<S, GROUP, BITS, 16>(unpacked, groups, &x(token), c(token));
                token += 16;
            }
            while S::Unit::TOKENS == 4 && token + 4 <= tokens {
                multiply_on_unit::<S, GROUP, BITS, 4>(unpacked, groups, &x(token), c(token));
                token += 4;
            }
            // The sums of eight tokens fit the registers of a wide instruction set, and share each
            // load of codes.
            while S::WIDTH == 16 && token + 8 <= tokens {
                multiply_vectors::<S, GROUP, BITS, 8>(unpacked, groups, &x(token), c(token));
                token += 8;
            }
            while token + 4 <= tokens {
                multiply_vectors::<S, GROUP, BITS, 4>(unpacked, groups, &x(token), c(token));
                token += 4;
            }
            while token < tokens {
                multiply_vectors::<S, GROUP, BITS, 1>(unpacked, groups, &x(token), c(token));
                token += 1;
            }
        }
    }
}

/// Adds the products with the first `N` tokens of `x` to `c`.
///
/// # Safety
/// As [`multiply`]; `unpacked` has the groups, `x` and `c` have `N` tokens.
#[inline(always)]
unsafe fn multiply_vectors<S: Simd, const GROUP: usize, const BITS: u32, const N: usize>(
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
                let codes = UnpackedCodes::<GROUP, BITS> { unpacked, row, first: group * (GROUP / 4) };
                accumulate::<S, _, N>(&codes, scale, min, x, group * GROUP, &mut acc);
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
unsafe fn multiply_on_unit<S: Simd, const GROUP: usize, const BITS: u32, const N: usize>(
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
        unit_product::<S, GROUP, BITS, N>(unpacked, 0, x, &mut sums);
        for group in 0..groups {
            if group + 1 < groups {
                unit_product::<S, GROUP, BITS, N>(unpacked, group + 1, x, &mut sums);
            }
            for line in 0..N * GROUP / 64 {
                S::prefetch(x.q8.cast::<u8>().wrapping_add(N * (CHUNK + group * GROUP) + 64 * line));
            }
            for vector in 0..ROWS / S::WIDTH {
                let row = vector * S::WIDTH;
                let scale = S::load(unpacked.scales[group].as_ptr().add(row));
                let min = S::load(unpacked.mins[group].as_ptr().add(row));
                let mut totals = [S::splat_i(0); N];
                for t in 0..N {
                    totals[t] = S::load_i(sums.0[group % 2][t].as_ptr().add(row).cast());
                }
                scale_sums::<S, UnpackedCodes<'_, GROUP, BITS>, N>(
                    totals,
                    scale,
                    min,
                    x,
                    group * GROUP,
                    &mut acc[vector],
                );
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
unsafe fn unit_product<S: Simd, const GROUP: usize, const BITS: u32, const N: usize>(
    unpacked: &UnpackedChunk,
    group: usize,
    x: &Q8Chunk,
    sums: &mut UnitSums<N>,
) {
    let words = GROUP / 4;
    let codes = unpacked.codes[group * words..].as_ptr().cast();
    let sums = sums.0[group % 2].as_mut_ptr().cast();
    // SAFETY: by the caller.
    unsafe { S::Unit::multiply(BITS, words, codes, x.q8.add(group * GROUP), CHUNK, sums) };
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
