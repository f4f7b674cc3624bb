//! The inner loop that products with few and with many tokens share.
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

use crate::{
    backend::cpu::kernels::quantize::{BLOCK, CHUNK, Chunk},
    quant::{ROWS, Tile},
    simd::Simd,
};

/// Bytes ahead of the codes in use that memory is asked for, into the nearest cache and into the second.
const NEAR: usize = 6 << 10;
const FAR: usize = 16 << 10;
/// The most vectors that sixteen rows take.
pub(super) const PARTS: usize = 4;

/// Asks for what lies ahead of the tile, `group` after `group` the part that is as large as one.
///
/// Small tiles are read from front to back, and the machine sees that itself: a little help brings them all the way. In
/// large ones fields far apart are read together. What it then misses must all be asked for, and the nearest cache
/// cannot wait for as many lines at once as memory can deliver.
#[inline(always)]
pub(super) unsafe fn prefetch<S: Simd, T: Tile>(tile: *const u8, group: usize) {
    let lines = (ROWS * T::BYTES).div_ceil(64).div_ceil(T::COLUMNS / T::GROUP);
    for line in group * lines..(group + 1) * lines {
        // SAFETY: by the caller, the machine has `S`; memory may be asked for anywhere.
        unsafe {
            match T::COLUMNS < CHUNK {
                true => S::prefetch(tile.wrapping_add(NEAR + 64 * line)),
                false => S::prefetch_far(tile.wrapping_add(FAR + 64 * line)),
            }
        }
    }
}

/// A group's codes, wherever they come from.
pub(super) trait Words {
    const GROUP: usize;
    const BITS: u32;
    unsafe fn word<S: Simd>(&self, index: usize) -> S::I;
}

/// Adds the products of one group, which begins at `column` of the chunk, with its first `N` tokens to `acc`.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, W: Words, const N: usize>(
    words: &W,
    [scale, min]: [S::F; 2],
    x: &Chunk,
    column: usize,
    acc: &mut [S::F; N],
) {
    let count = W::GROUP / 4;
    let span = S::span(W::BITS).min(count);
    // SAFETY: by the callers, the chunk has those columns and tokens.
    unsafe {
        let mut totals = [S::splat_i(0); N];
        for first in (0..count).step_by(span) {
            let mut sums = [S::splat_i(0); N];
            for word in first..first + span {
                let codes = words.word::<S>(word);
                for t in 0..N {
                    let four = x.codes.add(t * CHUNK + column + 4 * word).cast::<i32>().read_unaligned();
                    sums[t] = S::gather(W::BITS, sums[t], codes, S::splat_i(four));
                }
            }
            for t in 0..N {
                totals[t] = S::add_i(totals[t], S::total(W::BITS, sums[t]));
            }
        }
        scale_sums::<S, N>([W::GROUP, W::BITS as usize], totals, [scale, min], x, column, acc);
    }
}

/// Adds a group's integer sums with `N` tokens to `acc`, times the scales, less the minimum's share.
#[inline(always)]
pub(super) unsafe fn scale_sums<S: Simd, const N: usize>(
    [group, bits]: [usize; 2],
    sums: [S::I; N],
    [scale, min]: [S::F; 2],
    x: &Chunk,
    column: usize,
    acc: &mut [S::F; N],
) {
    // SAFETY: as for `accumulate`.
    unsafe {
        for t in 0..N {
            let block = (t * CHUNK + column) / BLOCK;
            let scale = S::mul(scale, S::splat(*x.scales.add(block)));
            acc[t] = S::fma(S::to_f(sums[t]), scale, acc[t]);
            if !(S::SIGNED_BYTES && bits == 8) {
                let sum = match group {
                    16 => *x.sums16.add((t * CHUNK + column) / 16),
                    _ => *x.sums32.add(block),
                };
                acc[t] = S::fnma(min, S::splat(sum), acc[t]);
            }
        }
    }
}
