//! Products of sixteen rows of a matrix with some tokens' activations: what every matrix product is made of.
//!
//! Out comes `c [tokens, 16]`. For few tokens the packed codes go straight from memory into the products ([`few`]); for
//! many, 256 columns at a time are unpacked once, into the first-level cache, and used for all tokens ([`many`]).
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

mod gemm;
mod gemv;

use std::marker::PhantomData;

use super::quantize::{Activations, BLOCK, CHUNK, Chunk};
use crate::{
    backend::cpu::weights::matrix::Matrix,
    quant::{self, ROWS, Tile, TileVisitor},
    simd::Simd,
};

/// Up to this many tokens, codes go straight from the tiles into the products.
const FEW_TOKENS: usize = 8;
/// Bytes ahead of the codes in use that memory is asked for, into the nearest cache and into the second.
const NEAR: usize = 6 << 10;
const FAR: usize = 16 << 10;
/// The most vectors that sixteen rows take.
const PARTS: usize = 4;
/// What the matrices are multiplied with.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    /// The rows in 8 bits; not looked at for matrices of plain floats.
    pub quantized: Activations,
    /// The rows as they are; not looked at for quantised matrices.
    pub plain: *const f32,
    /// Elements from one plain row to the next.
    pub stride: usize,
    /// Rows.
    pub tokens: usize,
}

/// `c[t][r]` = the product of the matrix's row `16 * group + r` with token `t`. Rows past the matrix give anything.
///
/// # Safety
/// The input is the matrix's columns wide, `c` has room, `group` is one of the matrix, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn group_product<S: Simd>(matrix: &Matrix, group: usize, input: &Input, c: *mut f32) {
    // SAFETY: by the caller.
    unsafe {
        match matrix {
            Matrix::Packed(packed) => {
                let x = &input.quantized;
                let visitor =
                    PackedProduct::<S> { tiles: packed.group(group), x, tokens: input.tokens, c, set: PhantomData };
                quant::visit_tile(packed.dtype, visitor);
            }
            Matrix::Float(float) => crate::backend::cpu::weights::float::group_product::<S>(float, group, input, c),
        }
    }
}

/// Whether the input has so many tokens that codes are unpacked for them, and a matrix unit can multiply them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn has_many(input: &Input) -> bool {
    input.tokens > FEW_TOKENS
}

/// Does the same as [`group_product`], for packed matrices and inputs that [`has_many`] tokens.
///
/// # Safety
/// As for [`group_product`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(crate) unsafe fn group_product_of_many<S: Simd>(
    packed: &crate::backend::cpu::weights::packed::Packed,
    group: usize,
    input: &Input,
    c: *mut f32,
) {
    let (tiles, x, tokens) = (packed.group(group), &input.quantized, input.tokens);
    // SAFETY: by the caller.
    unsafe {
        quant::visit_tile(packed.dtype, ManyProduct::<S>(PackedProduct { tiles, x, tokens, c, set: PhantomData }))
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct ManyProduct<'a, S>(PackedProduct<'a, S>);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<S: Simd> TileVisitor for ManyProduct<'_, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn visit<T: Tile>(self) {
        let PackedProduct { tiles, x, tokens, c, .. } = self.0;
        // SAFETY: by the caller of `group_product_of_many`.
        unsafe { gemm::multiply::<S, T>(tiles, x, tokens, c) }
    }
}

struct PackedProduct<'a, S> {
    tiles: *const u8,
    x: &'a Activations,
    tokens: usize,
    c: *mut f32,
    set: PhantomData<S>,
}

impl<S: Simd> TileVisitor for PackedProduct<'_, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn visit<T: Tile>(self) {
        let Self { tiles, x, tokens, c, .. } = self;
        // SAFETY: by the caller of `group_product`.
        unsafe {
            if tokens > FEW_TOKENS {
                return gemm::multiply::<S, T>(tiles, x, tokens, c);
            }
            let mut token = 0;
            // Thirty-two registers hold the sums of eight tokens, whose codes are then decoded once.
            if S::WIDTH == 16 && tokens == FEW_TOKENS {
                return gemv::multiply::<S, T, FEW_TOKENS>(tiles, x, 0, c);
            }
            while token + 4 <= tokens {
                gemv::multiply::<S, T, 4>(tiles, x, token, c);
                token += 4;
            }
            if token + 2 <= tokens {
                gemv::multiply::<S, T, 2>(tiles, x, token, c);
                token += 2;
            }
            if token < tokens {
                gemv::multiply::<S, T, 1>(tiles, x, token, c);
            }
        }
    }
}

/// Asks for what lies ahead of the tile, `group` after `group` the part that is as large as one.
///
/// Small tiles are read from front to back, and the machine sees that itself: a little help brings them all the way. In
/// large ones fields far apart are read together. What it then misses must all be asked for, and the nearest cache
/// cannot wait for as many lines at once as memory can deliver.
#[inline(always)]
unsafe fn prefetch<S: Simd, T: Tile>(tile: *const u8, group: usize) {
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
trait Words {
    const GROUP: usize;
    const BITS: u32;
    unsafe fn word<S: Simd>(&self, index: usize) -> S::I;
}

/// Adds the products of one group, which begins at `column` of the chunk, with its first `N` tokens to `acc`.
#[inline(always)]
unsafe fn accumulate<S: Simd, W: Words, const N: usize>(
    words: &W,
    [scale, min]: [S::F; 2],
    x: &Chunk,
    column: usize,
    acc: &mut [S::F; N],
) {
    let count = W::GROUP / 4;
    let span = S::dot_words(W::BITS).min(count);
    // SAFETY: by the callers, the chunk has those columns and tokens.
    unsafe {
        let mut totals = [S::splat_i(0); N];
        for first in (0..count).step_by(span) {
            let mut sums = [S::splat_i(0); N];
            for word in first..first + span {
                let codes = words.word::<S>(word);
                for t in 0..N {
                    let four = x.codes.add(t * CHUNK + column + 4 * word).cast::<i32>().read_unaligned();
                    sums[t] = S::dot4_accumulate(W::BITS, sums[t], codes, S::splat_i(four));
                }
            }
            for t in 0..N {
                totals[t] = S::add_i(totals[t], S::finish_dot(W::BITS, sums[t]));
            }
        }
        scale_sums::<S, N>([W::GROUP, W::BITS as usize], totals, [scale, min], x, column, acc);
    }
}

/// Adds a group's integer sums with `N` tokens to `acc`, times the scales, less the minimum's share.
#[inline(always)]
unsafe fn scale_sums<S: Simd, const N: usize>(
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
