//! Implements the inner loop of products with quantized weights, for gemv and gemm.
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

use crate::{
    backend::cpu::kernels::quantize::{BLOCK, CHUNK, Q8Chunk},
    quant::{ROWS, Tile},
    simd::Simd,
};

/// Bytes ahead of the codes in use that are prefetched into the first-level cache.
const NEAR: usize = 6 << 10;
/// Bytes ahead of the codes in use that are prefetched into the second-level cache.
const FAR: usize = 16 << 10;
/// The largest number of vectors that sixteen rows take.
pub(super) const MAX_VECTORS: usize = 4;

/// The codes of a group of columns, which share a scale and a minimum.
pub(super) trait GroupCodes {
    /// Columns of the group.
    const GROUP: usize;
    /// Bits of a code.
    const BITS: u32;

    /// Returns words `2 * index` and `2 * index + 1` of each row: four codes of successive columns
    /// each.
    ///
    /// # Safety
    /// The group has the words, and the machine has `S`.
    unsafe fn pair<S: Simd>(&self, index: usize) -> [S::I; 2];
}

/// Prefetches memory ahead of the tile. The calls for all groups of a tile together request the
/// bytes of one tile.
///
/// Small tiles are read sequentially, which the hardware prefetcher recognizes: a hint brings them
/// into the first-level cache. Large tiles have fields far apart that are read together. The lines
/// that the hardware then misses must be requested here, into the second-level cache: the first
/// allows too few outstanding requests to use the bandwidth of the memory.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn prefetch<S: Simd, T: Tile>(tile: *const u8, group: usize) {
    let lines = (ROWS * T::BYTES).div_ceil(64).div_ceil(T::COLUMNS / T::GROUP);
    for line in group * lines..(group + 1) * lines {
        // SAFETY: by the caller; prefetches may name any address.
        unsafe {
            if T::COLUMNS < CHUNK {
                S::prefetch(tile.wrapping_add(NEAR + 64 * line));
            } else {
                S::prefetch_far(tile.wrapping_add(FAR + 64 * line));
            }
        }
    }
}

/// Adds the products of a group, whose first column is `column` of the chunk, with the chunk's
/// first `N` tokens to `acc`.
///
/// # Safety
/// The chunk has these columns and tokens, `codes` is readable, and the machine has `S`.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, C: GroupCodes, const N: usize>(
    codes: &C,
    scale: S::F,
    min: S::F,
    x: &Q8Chunk,
    column: usize,
    acc: &mut [S::F; N],
) {
    let words = C::GROUP / 4;
    let span = S::dot_words(C::BITS).min(words);
    // SAFETY: by the caller.
    unsafe {
        let mut totals = [S::splat_i(0); N];
        for first in (0..words).step_by(span) {
            let mut sums = [S::splat_i(0); N];
            for pair in first / 2..(first + span) / 2 {
                let codes = codes.pair::<S>(pair);
                for half in 0..2 {
                    for t in 0..N {
                        let four = x.q8.add(t * CHUNK + column + 8 * pair + 4 * half).cast::<i32>().read_unaligned();
                        sums[t] = S::dot4_accumulate(C::BITS, sums[t], codes[half], S::splat_i(four));
                    }
                }
            }
            for t in 0..N {
                totals[t] = S::add_i(totals[t], S::finish_dot(C::BITS, sums[t]));
            }
        }
        scale_sums::<S, C, N>(totals, scale, min, x, column, acc);
    }
}

/// Adds the integer sums of a group with `N` tokens to `acc`, times the scales of weights and
/// activations, minus the group's minimum times the sum of its activations.
///
/// # Safety
/// The chunk has the group's columns and `N` tokens, and the machine has `S`.
#[inline(always)]
pub(super) unsafe fn scale_sums<S: Simd, C: GroupCodes, const N: usize>(
    sums: [S::I; N],
    scale: S::F,
    min: S::F,
    x: &Q8Chunk,
    column: usize,
    acc: &mut [S::F; N],
) {
    // SAFETY: by the caller.
    unsafe {
        for t in 0..N {
            let block = (t * CHUNK + column) / BLOCK;
            let scale = S::mul(scale, S::splat(*x.scales.add(block)));
            acc[t] = S::fma(S::to_f(sums[t]), scale, acc[t]);
            // If 8-bit codes are multiplied as signed bytes, the sums already include the minimum.
            if !(S::SIGNED_BYTES && C::BITS == 8) {
                let sum = match C::GROUP {
                    16 => *x.sums16.add((t * CHUNK + column) / 16),
                    _ => *x.sums32.add(block),
                };
                acc[t] = S::fnma(min, S::splat(sum), acc[t]);
            }
        }
    }
}
