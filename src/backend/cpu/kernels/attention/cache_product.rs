//! Multiplies rows of f32 with a matrix in the cache, which computes both scores and sums of
//! values.
//!
//! The matrix is converted as it is read, once for up to four rows. The sums of a tile stay in
//! registers.
#![allow(clippy::needless_range_loop, reason = "rows and vectors are numbered, and there are constants to unroll by")]

use std::marker::PhantomData;

use super::element::CacheElement;
use crate::{
    backend::cpu::kernels::rows::StridedRows,
    simd::{Simd, SimdKernel},
};

/// The layout of a matrix `[depth, columns]` in a page.
#[derive(Clone, Copy)]
pub(super) struct CacheMatrix {
    pub start: *const u8,
    /// Bytes from one row to the next.
    pub row_bytes: usize,
    /// Bytes from sixteen columns to the next sixteen.
    pub group_bytes: usize,
}

/// The product `out [rows, columns] += left [rows, depth] * matrix [depth, columns]`.
pub(super) struct CacheProduct {
    pub matrix: CacheMatrix,
    pub depth: usize,
    /// A multiple of 16.
    pub columns: usize,
    /// `[columns]`: f16 factors of the product's columns.
    pub scales: Option<*const u16>,
    pub left: StridedRows,
    pub out: StridedRows,
}

/// The operands of [`CacheProduct::add`], for elements stored as `E`. Its `run` requires what that
/// does.
struct AddRows<'a, E> {
    product: &'a CacheProduct,
    rows: usize,
    next: Option<*const u8>,
    element: PhantomData<E>,
}

impl<E: CacheElement> SimdKernel for AddRows<'_, E> {
    /// # Safety: as [`CacheProduct::add`].
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { product, rows, mut next, .. } = self;
        let mut row = 0;
        // SAFETY: by the caller.
        unsafe {
            while row + 4 <= rows {
                product.add_rows::<S, E, 4>(row, next.take());
                row += 4;
            }
            if row + 2 <= rows {
                product.add_rows::<S, E, 2>(row, next.take());
                row += 2;
            }
            if row < rows {
                product.add_rows::<S, E, 1>(row, next.take());
            }
        }
    }
}

impl CacheProduct {
    /// Computes the product for `rows` rows. Meanwhile it prefetches as many bytes as it reads,
    /// from `next` on.
    ///
    /// # Safety
    /// The operands have the shapes above, in format `E`; no other thread uses `out`; the machine
    /// has `S`.
    #[inline(always)]
    pub unsafe fn add<S: Simd, E: CacheElement>(&self, rows: usize, next: Option<*const u8>) {
        // SAFETY: by the caller.
        unsafe { S::call(AddRows::<E::Stored> { product: self, rows, next, element: PhantomData }) };
    }

    /// Computes the product for `N` rows from `row` on.
    ///
    /// # Safety
    /// As [`CacheProduct::add`].
    #[inline(always)]
    unsafe fn add_rows<S: Simd, E: CacheElement, const N: usize>(&self, row: usize, mut next: Option<*const u8>) {
        // The sums take half of the registers. The last columns follow sixteen at a time.
        let vectors = if S::WIDTH == 16 { 4 } else { 8 / N };
        let mut column = 0;
        // SAFETY: by the caller.
        unsafe {
            while column + vectors * S::WIDTH <= self.columns {
                match vectors {
                    8 => self.add_tile::<S, E, N, 8>(row, column, &mut next),
                    4 => self.add_tile::<S, E, N, 4>(row, column, &mut next),
                    _ => self.add_tile::<S, E, N, 2>(row, column, &mut next),
                }
                column += vectors * S::WIDTH;
            }
            while column < self.columns {
                match S::WIDTH {
                    16 => self.add_tile::<S, E, N, 1>(row, column, &mut next),
                    _ => self.add_tile::<S, E, N, 2>(row, column, &mut next),
                }
                column += 16;
            }
        }
    }

    /// Computes the columns of `V` vectors, from `column` on, for `N` rows.
    ///
    /// # Safety
    /// As [`CacheProduct::add`].
    #[inline(always)]
    unsafe fn add_tile<S: Simd, E: CacheElement, const N: usize, const V: usize>(
        &self,
        row: usize,
        column: usize,
        next: &mut Option<*const u8>,
    ) {
        let CacheMatrix { start, row_bytes, group_bytes } = self.matrix;
        let bytes = V * S::WIDTH * E::BYTES;
        // SAFETY: by the caller; prefetches may name any address.
        unsafe {
            let out = self.out.row(row).add(column);
            let left = self.left.row(row);
            let mut from = start.add(column / 16 * group_bytes + column % 16 * E::BYTES);
            let mut acc = [[S::splat(0.0); V]; N];
            if self.scales.is_none() {
                for n in 0..N {
                    for v in 0..V {
                        acc[n][v] = S::load(out.add(n * self.out.stride + v * S::WIDTH));
                    }
                }
            }
            for i in 0..self.depth {
                if let Some(next) = next {
                    for line in (0..bytes).step_by(64) {
                        S::prefetch_far(next.wrapping_add(line));
                    }
                    *next = next.wrapping_add(bytes);
                }
                let mut right = [S::splat(0.0); V];
                for v in 0..V {
                    right[v] = E::load::<S>(from.add(v * S::WIDTH / 16 * group_bytes + v * S::WIDTH % 16 * E::BYTES));
                }
                for n in 0..N {
                    let left = S::splat(*left.add(n * self.left.stride + i));
                    for v in 0..V {
                        acc[n][v] = S::fma(left, right[v], acc[n][v]);
                    }
                }
                from = from.add(row_bytes);
            }
            for n in 0..N {
                for v in 0..V {
                    let out = out.add(n * self.out.stride + v * S::WIDTH);
                    if let Some(scales) = self.scales {
                        let scale = S::load_f16(scales.add(column + v * S::WIDTH));
                        acc[n][v] = S::fma(acc[n][v], scale, S::load(out));
                    }
                    S::store(out, acc[n][v]);
                }
            }
        }
    }
}
