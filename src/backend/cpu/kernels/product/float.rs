//! Multiplies matrices of f32, f16 or bf16, as the file has them, with activations in f32.
#![allow(clippy::needless_range_loop, reason = "rows are numbered, and their number is a constant to unroll by")]

use super::input::Input;
use crate::{DType, backend::cpu::weights::float::FloatMatrix, quant::ROWS, simd::Simd};

/// Computes [`super::group_product`] for a float matrix.
///
/// # Safety
/// As [`super::group_product`].
#[inline(always)]
pub(super) unsafe fn group_product<S: Simd>(matrix: &FloatMatrix, group: usize, input: &Input, c: *mut f32) {
    // SAFETY: by the caller.
    unsafe {
        match matrix.dtype {
            DType::F16 => multiply::<S, F16Weight>(matrix, group, input, c),
            DType::BF16 => multiply::<S, Bf16Weight>(matrix, group, input, c),
            _ => multiply::<S, F32Weight>(matrix, group, input, c),
        }
    }
}

/// A float format of weights.
trait FloatWeight {
    const BYTES: usize;

    /// Loads a vector of elements.
    ///
    /// # Safety
    /// `from` is readable for `S::WIDTH` elements, and the machine has `S`.
    unsafe fn load<S: Simd>(from: *const u8) -> S::F;

    /// Loads one element.
    ///
    /// # Safety
    /// `from` is readable for one element.
    unsafe fn load_one(from: *const u8) -> f32;
}

struct F32Weight;
struct F16Weight;
struct Bf16Weight;

impl FloatWeight for F32Weight {
    const BYTES: usize = 4;
    /// # Safety: as [`FloatWeight::load`].
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load(from.cast()) }
    }
    /// # Safety: as [`FloatWeight::load_one`].
    #[inline(always)]
    unsafe fn load_one(from: *const u8) -> f32 {
        // SAFETY: by the caller.
        unsafe { from.cast::<f32>().read_unaligned() }
    }
}

impl FloatWeight for F16Weight {
    const BYTES: usize = 2;
    /// # Safety: as [`FloatWeight::load`].
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load_f16(from.cast()) }
    }
    /// # Safety: as [`FloatWeight::load_one`].
    #[inline(always)]
    unsafe fn load_one(from: *const u8) -> f32 {
        // SAFETY: by the caller.
        unsafe { half::f16::from_bits(from.cast::<u16>().read_unaligned()).to_f32() }
    }
}

impl FloatWeight for Bf16Weight {
    const BYTES: usize = 2;
    /// # Safety: as [`FloatWeight::load`].
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load_bf16(from.cast()) }
    }
    /// # Safety: as [`FloatWeight::load_one`].
    #[inline(always)]
    unsafe fn load_one(from: *const u8) -> f32 {
        // SAFETY: by the caller.
        unsafe { half::bf16::from_bits(from.cast::<u16>().read_unaligned()).to_f32() }
    }
}

/// Writes the products of a group of rows with all tokens to `c`.
///
/// # Safety
/// As [`super::group_product`], and `W` is the matrix's format.
#[inline(always)]
unsafe fn multiply<S: Simd, W: FloatWeight>(matrix: &FloatMatrix, group: usize, input: &Input, c: *mut f32) {
    let (data, group) = (matrix.matrix_of(group), matrix.stack.rows_within(group));
    let columns = matrix.stack.columns;
    let row_bytes = columns * W::BYTES;
    // SAFETY: by the caller; rows past the end of the matrix are replaced by its last row.
    unsafe {
        for row in (0..group.len()).step_by(4) {
            let mut rows = [data; 4];
            for (i, from) in rows.iter_mut().enumerate() {
                *from = data.add((group.start + row + i).min(group.end - 1) * row_bytes);
            }
            let mut token = 0;
            while token + 4 <= input.tokens {
                four_rows::<S, W, 4>(rows, columns, input, token, c.add(row));
                token += 4;
            }
            while token < input.tokens {
                four_rows::<S, W, 1>(rows, columns, input, token, c.add(row));
                token += 1;
            }
        }
    }
}

/// Writes the products of four rows with `N` tokens, from `token` on, to `c`.
///
/// # Safety
/// The rows are readable for `columns` elements, `input` has the tokens, `c` is writable for four
/// floats of each token's row, and the machine has `S`.
#[inline(always)]
unsafe fn four_rows<S: Simd, W: FloatWeight, const N: usize>(
    rows: [*const u8; 4],
    columns: usize,
    input: &Input,
    token: usize,
    c: *mut f32,
) {
    // SAFETY: by the caller; every access is below `columns`.
    unsafe {
        let x = input.f32.row(token);
        let mut acc = [[S::splat(0.0); 4]; N];
        let whole = columns / S::WIDTH * S::WIDTH;
        for k in (0..whole).step_by(S::WIDTH) {
            let mut w = [S::splat(0.0); 4];
            for r in 0..4 {
                w[r] = W::load::<S>(rows[r].add(k * W::BYTES));
                // The same columns four rows on: rows follow one another, so these are read next.
                S::prefetch_far(rows[r].wrapping_add((4 * columns + k) * W::BYTES));
            }
            for t in 0..N {
                let x = S::load(x.add(t * input.f32.stride + k));
                for r in 0..4 {
                    acc[t][r] = S::fma(x, w[r], acc[t][r]);
                }
            }
        }
        for t in 0..N {
            for r in 0..4 {
                let mut sum = S::sum(acc[t][r]);
                for k in whole..columns {
                    sum += *x.add(t * input.f32.stride + k) * W::load_one(rows[r].add(k * W::BYTES));
                }
                *c.add((token + t) * ROWS + r) = sum;
            }
        }
    }
}
