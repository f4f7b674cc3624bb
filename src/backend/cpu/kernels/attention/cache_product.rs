//! Products of rows of numbers with a matrix in the cache: what scores and sums of values both are.
//!
//! The matrix is converted as it is read, once for up to four rows; the sums of a tile stay in registers.
#![allow(clippy::needless_range_loop, reason = "rows and vectors are numbered, and there are constants to unroll by")]

use super::element::Element;
use crate::simd::Simd;

/// Where a matrix `[steps, columns]` lies.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub start: *const u8,
    /// Bytes from one step to the next.
    pub step: usize,
    /// Bytes from sixteen columns to the next sixteen.
    pub group: usize,
}

/// `out [rows, columns] += left [rows, steps] * matrix [steps, columns]`
pub(super) struct Product {
    pub matrix: Matrix,
    pub steps: usize,
    /// A multiple of 16.
    pub columns: usize,
    /// What the product's columns are multiplied with, in half precision.
    pub scales: Option<*const u16>,
    pub left: *const f32,
    pub left_stride: usize,
    pub out: *mut f32,
    pub out_stride: usize,
}

impl Product {
    /// Computes it. Meanwhile memory from `next` on is asked for, as much as is read.
    ///
    /// # Safety
    /// Everything is there, and the machine has `S`.
    #[inline(always)]
    pub unsafe fn add<S: Simd, E: Element>(&self, rows: usize, mut next: Option<*const u8>) {
        let mut row = 0;
        // SAFETY: by the caller.
        unsafe {
            while row + 4 <= rows {
                self.add_rows::<S, E, 4>(row, next.take());
                row += 4;
            }
            if row + 2 <= rows {
                self.add_rows::<S, E, 2>(row, next.take());
                row += 2;
            }
            if row < rows {
                self.add_rows::<S, E, 1>(row, next.take());
            }
        }
    }

    #[inline(always)]
    unsafe fn add_rows<S: Simd, E: Element, const N: usize>(&self, row: usize, mut next: Option<*const u8>) {
        // The sums take half of the registers; the rest of the columns comes sixteen at a time.
        let vectors = if S::WIDTH == 16 { 4 } else { 8 / N };
        let mut column = 0;
        // SAFETY: by the caller of `add`.
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

    /// The columns of `V` vectors, from `column` on.
    #[inline(always)]
    unsafe fn add_tile<S: Simd, E: Element, const N: usize, const V: usize>(
        &self,
        row: usize,
        column: usize,
        next: &mut Option<*const u8>,
    ) {
        let Matrix { start, step, group } = self.matrix;
        let bytes = V * S::WIDTH * E::BYTES;
        // SAFETY: by the caller of `add`; prefetches may point anywhere.
        unsafe {
            let out = self.out.add(row * self.out_stride + column);
            let left = self.left.add(row * self.left_stride);
            let mut from = start.add(column / 16 * group + column % 16 * E::BYTES);
            let mut acc = [[S::splat(0.0); V]; N];
            if self.scales.is_none() {
                for n in 0..N {
                    for v in 0..V {
                        acc[n][v] = S::load(out.add(n * self.out_stride + v * S::WIDTH));
                    }
                }
            }
            for i in 0..self.steps {
                if let Some(next) = next {
                    for line in (0..bytes).step_by(64) {
                        S::prefetch_far(next.wrapping_add(line));
                    }
                    *next = next.wrapping_add(bytes);
                }
                let mut right = [S::splat(0.0); V];
                for v in 0..V {
                    right[v] = E::load::<S>(from.add(v * S::WIDTH / 16 * group + v * S::WIDTH % 16 * E::BYTES));
                }
                for n in 0..N {
                    let left = S::splat(*left.add(n * self.left_stride + i));
                    for v in 0..V {
                        acc[n][v] = S::fma(left, right[v], acc[n][v]);
                    }
                }
                from = from.add(step);
            }
            for n in 0..N {
                for v in 0..V {
                    let out = out.add(n * self.out_stride + v * S::WIDTH);
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
