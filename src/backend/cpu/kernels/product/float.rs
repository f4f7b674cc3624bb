//! Products with matrices of plain floats, as the file holds them: the activations stay in single precision.
#![allow(clippy::needless_range_loop, reason = "rows are numbered, and their number is a constant to unroll by")]

use super::input::Input;
use crate::{DType, backend::cpu::weights::float::FloatMatrix, quant::ROWS, simd::Simd};

/// As [`super::product::group_product`].
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn group_product<S: Simd>(matrix: &FloatMatrix, group: usize, input: &Input, c: *mut f32) {
    // SAFETY: by the caller.
    unsafe {
        match matrix.dtype {
            DType::F16 => rows::<S, F16>(matrix, group, input, c),
            DType::BF16 => rows::<S, Bf16>(matrix, group, input, c),
            _ => rows::<S, F32>(matrix, group, input, c),
        }
    }
}

/// How elements are read.
trait Element {
    const BYTES: usize;
    unsafe fn load<S: Simd>(from: *const u8) -> S::F;
    unsafe fn one(from: *const u8) -> f32;
}

struct F32;
struct F16;
struct Bf16;

impl Element for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load(from.cast()) }
    }
    #[inline(always)]
    unsafe fn one(from: *const u8) -> f32 {
        // SAFETY: by the caller.
        unsafe { from.cast::<f32>().read_unaligned() }
    }
}

impl Element for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load_f16(from.cast()) }
    }
    #[inline(always)]
    unsafe fn one(from: *const u8) -> f32 {
        // SAFETY: by the caller.
        unsafe { half::f16::from_bits(from.cast::<u16>().read_unaligned()).to_f32() }
    }
}

impl Element for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load_bf16(from.cast()) }
    }
    #[inline(always)]
    unsafe fn one(from: *const u8) -> f32 {
        // SAFETY: by the caller.
        unsafe { half::bf16::from_bits(from.cast::<u16>().read_unaligned()).to_f32() }
    }
}

#[inline(always)]
unsafe fn rows<S: Simd, E: Element>(matrix: &FloatMatrix, group: usize, input: &Input, c: *mut f32) {
    let (data, group) = (matrix.data_of(group), matrix.stack.rows_within(group));
    let columns = matrix.stack.columns;
    let row_bytes = columns * E::BYTES;
    // SAFETY: rows past the matrix are replaced by its last; the rest is by the caller.
    unsafe {
        for row in (0..group.len()).step_by(4) {
            let mut rows = [data; 4];
            for (i, from) in rows.iter_mut().enumerate() {
                *from = data.add((group.start + row + i).min(group.end - 1) * row_bytes);
            }
            let mut token = 0;
            while token + 4 <= input.tokens {
                four_rows::<S, E, 4>(rows, columns, input, token, c.add(row));
                token += 4;
            }
            while token < input.tokens {
                four_rows::<S, E, 1>(rows, columns, input, token, c.add(row));
                token += 1;
            }
        }
    }
}

/// The products of four rows with `N` tokens.
#[inline(always)]
unsafe fn four_rows<S: Simd, E: Element, const N: usize>(
    rows: [*const u8; 4],
    columns: usize,
    input: &Input,
    token: usize,
    c: *mut f32,
) {
    // SAFETY: every access is below `columns`; the rest is by the caller.
    unsafe {
        let x = input.plain.add(token * input.stride);
        let mut acc = [[S::splat(0.0); 4]; N];
        let whole = columns / S::WIDTH * S::WIDTH;
        for k in (0..whole).step_by(S::WIDTH) {
            let mut w = [S::splat(0.0); 4];
            for r in 0..4 {
                w[r] = E::load::<S>(rows[r].add(k * E::BYTES));
                // The same place four rows on: the rows lie one after the other, so this is the stream's order.
                S::prefetch_far(rows[r].wrapping_add((4 * columns + k) * E::BYTES));
            }
            for t in 0..N {
                let x = S::load(x.add(t * input.stride + k));
                for r in 0..4 {
                    acc[t][r] = S::fma(x, w[r], acc[t][r]);
                }
            }
        }
        for t in 0..N {
            for r in 0..4 {
                let mut sum = S::sum(acc[t][r]);
                for k in whole..columns {
                    sum += *x.add(t * input.stride + k) * E::one(rows[r].add(k * E::BYTES));
                }
                *c.add((token + t) * ROWS + r) = sum;
            }
        }
    }
}
