//! Products of sixteen rows of a matrix with some tokens' activations: what every matrix product is made of.
//!
//! Out comes `c [tokens, 16]`. For few tokens the packed codes go straight from memory into the products; for many,
//! 256 columns at a time are unpacked once, into the first-level cache, and used for all tokens.
#![allow(clippy::needless_range_loop, reason = "tokens are numbered, and their number is a constant to unroll by")]

use std::{marker::PhantomData, ops::Range};

use super::{activations::Activations, matrix::Matrix};
use crate::quant::{self, Lanes, ROWS, Simd, Tile, TileVisitor};

/// Up to this many tokens, codes go straight from the tiles into the products.
const FEW_TOKENS: usize = 8;
/// Columns that are unpacked at a time.
const CHUNK: usize = 256;
/// Bytes ahead of the codes in use that memory is asked for.
const PREFETCH: usize = 2048;
/// The most vectors that sixteen rows take.
const PARTS: usize = 4;

/// What the matrices are multiplied with.
#[derive(Clone, Copy)]
pub(super) struct Input {
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
pub(super) unsafe fn group_product<S: Simd>(matrix: &Matrix, group: usize, input: &Input, c: *mut f32) {
    // SAFETY: by the caller.
    unsafe {
        match matrix {
            Matrix::Packed(packed) => {
                let x = &input.quantized;
                let visitor =
                    PackedProduct::<S> { tiles: packed.group(group), x, tokens: input.tokens, c, set: PhantomData };
                quant::visit_tile(packed.dtype, visitor);
            }
            Matrix::Float(float) => super::float::group_product::<S>(float, group, input, c),
        }
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
                return unpacked::<S, T>(tiles, x, tokens, c);
            }
            let mut token = 0;
            // Thirty-two registers hold the sums of eight tokens, whose codes are then decoded once.
            if S::WIDTH == 16 && tokens == FEW_TOKENS {
                return direct::<S, T, FEW_TOKENS>(tiles, x, 0, c);
            }
            while token + 4 <= tokens {
                direct::<S, T, 4>(tiles, x, token, c);
                token += 4;
            }
            if token + 2 <= tokens {
                direct::<S, T, 2>(tiles, x, token, c);
                token += 2;
            }
            if token < tokens {
                direct::<S, T, 1>(tiles, x, token, c);
            }
        }
    }
}

/// The products of `N` tokens from `token` on, decoding as it goes.
#[inline(always)]
unsafe fn direct<S: Simd, T: Tile, const N: usize>(tiles: *const u8, x: &Activations, token: usize, c: *mut f32) {
    let tile_bytes = ROWS * T::BYTES;
    let groups = T::COLUMNS / T::GROUP;
    let prefetches = tile_bytes.div_ceil(64).div_ceil(groups);
    // SAFETY: tiles and tokens are as many as the caller says; prefetches may point anywhere.
    unsafe {
        let mut acc = [[S::splat(0.0); N]; PARTS];
        for index in 0..x.columns / T::COLUMNS {
            let tile = tiles.add(index * tile_bytes);
            for part in 0..ROWS / S::WIDTH {
                let lanes = Lanes { tile, row: part * S::WIDTH };
                let head = T::head::<S>(lanes);
                for group in 0..groups {
                    if part == 0 {
                        for i in 0..prefetches {
                            S::prefetch(tile.wrapping_add(PREFETCH + 64 * (group * prefetches + i)));
                        }
                    }
                    let (scale, min) = T::scale_min::<S>(&head, group);
                    let column = index * T::COLUMNS + group * T::GROUP;
                    let words = TileWords::<T> { lanes, first: group * (T::GROUP / 4), format: PhantomData };
                    accumulate::<S, _, N>(&words, [scale, min], x, token, column, &mut acc[part]);
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

/// A group's codes, wherever they come from.
trait Words {
    const GROUP: usize;
    const BITS: u32;
    unsafe fn word<S: Simd>(&self, index: usize) -> S::I;
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

/// Adds one group's products with `N` tokens to `acc`.
#[inline(always)]
unsafe fn accumulate<S: Simd, W: Words, const N: usize>(
    words: &W,
    [scale, min]: [S::F; 2],
    x: &Activations,
    token: usize,
    column: usize,
    acc: &mut [S::F; N],
) {
    let count = W::GROUP / 4;
    let span = S::span(W::BITS).min(count);
    // SAFETY: by the callers, the columns from `column` on lie in the rows of `x`.
    unsafe {
        let mut totals = [S::splat_i(0); N];
        for first in (0..count).step_by(span) {
            let mut sums = [S::splat_i(0); N];
            for word in first..first + span {
                let codes = words.word::<S>(word);
                for t in 0..N {
                    let four = x.codes.add((token + t) * x.columns + column + 4 * word).cast::<i32>().read_unaligned();
                    sums[t] = S::gather(W::BITS, sums[t], codes, S::splat_i(four));
                }
            }
            for t in 0..N {
                totals[t] = S::add_i(totals[t], S::total(W::BITS, sums[t]));
            }
        }
        for t in 0..N {
            let block = ((token + t) * x.columns + column) / super::activations::BLOCK;
            let scale = S::mul(scale, S::splat(*x.scales.add(block)));
            acc[t] = S::fma(S::to_f(totals[t]), scale, acc[t]);
            if !(S::SIGNED_BYTES && W::BITS == 8) {
                let sum = match W::GROUP {
                    16 => *x.sums16.add(((token + t) * x.columns + column) / 16),
                    _ => *x.sums32.add(block),
                };
                acc[t] = S::fnma(min, S::splat(sum), acc[t]);
            }
        }
    }
}

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
unsafe fn unpacked<S: Simd, T: Tile>(tiles: *const u8, x: &Activations, tokens: usize, c: *mut f32) {
    let mut chunk =
        Unpacked { codes: [[0; ROWS]; CHUNK / 4], scales: [[0.0; ROWS]; CHUNK / 16], mins: [[0.0; ROWS]; CHUNK / 16] };
    // SAFETY: by the caller.
    unsafe {
        c.write_bytes(0, tokens * ROWS);
        for column in (0..x.columns).step_by(CHUNK) {
            let columns = CHUNK.min(x.columns - column);
            for at in (0..columns).step_by(T::COLUMNS) {
                let tile = tiles.add((column + at) / T::COLUMNS * ROWS * T::BYTES);
                unpack::<S, T>(tile, at, &mut chunk);
            }
            multiply::<S, T>(&chunk, x, column..column + columns, tokens, c);
        }
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
            }
            for word in 0..T::COLUMNS / 4 {
                S::store_i(to.codes[at / 4 + word].as_mut_ptr().add(row).cast(), T::codes::<S>(lanes, word));
            }
        }
    }
}

struct UnpackedWords<'a, T> {
    chunk: &'a Unpacked,
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
        unsafe { S::load_i(self.chunk.codes.as_ptr().add(self.first + index).cast::<u32>().add(self.row).cast()) }
    }
}

/// Adds the products of the chunk's columns with all tokens to `c`.
#[inline(always)]
unsafe fn multiply<S: Simd, T: Tile>(
    chunk: &Unpacked,
    x: &Activations,
    columns: Range<usize>,
    tokens: usize,
    c: *mut f32,
) {
    // SAFETY: by the caller.
    unsafe {
        let mut token = 0;
        // Eight tokens' sums fit the registers of a wide instruction set, and share each load of codes.
        while S::WIDTH == 16 && token + 8 <= tokens {
            multiply_some::<S, T, 8>(chunk, x, columns.clone(), token, c);
            token += 8;
        }
        while token + 4 <= tokens {
            multiply_some::<S, T, 4>(chunk, x, columns.clone(), token, c);
            token += 4;
        }
        while token < tokens {
            multiply_some::<S, T, 1>(chunk, x, columns.clone(), token, c);
            token += 1;
        }
    }
}

#[inline(always)]
unsafe fn multiply_some<S: Simd, T: Tile, const N: usize>(
    chunk: &Unpacked,
    x: &Activations,
    columns: Range<usize>,
    token: usize,
    c: *mut f32,
) {
    // SAFETY: by the caller.
    unsafe {
        for row in (0..ROWS).step_by(S::WIDTH) {
            let mut acc = [S::splat(0.0); N];
            for t in 0..N {
                acc[t] = S::load(c.add((token + t) * ROWS + row));
            }
            for group in 0..columns.len() / T::GROUP {
                let scale = S::load(chunk.scales[group].as_ptr().add(row));
                let min = S::load(chunk.mins[group].as_ptr().add(row));
                let words = UnpackedWords::<T> { chunk, row, first: group * (T::GROUP / 4), format: PhantomData };
                let column = columns.start + group * T::GROUP;
                accumulate::<S, _, N>(&words, [scale, min], x, token, column, &mut acc);
            }
            for t in 0..N {
                S::store(c.add((token + t) * ROWS + row), acc[t]);
            }
        }
    }
}
