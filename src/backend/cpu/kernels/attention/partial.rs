//! Merges the results of a block of query rows for the splits of the cache.

use crate::{backend::cpu::kernels::math, simd::Simd};

/// Lanes in which the weights of a row are summed.
const LANES: usize = 16;

/// An unfinished softmax: for each row the maximum score, the sum of the weights relative to it,
/// and the sum of the values with these weights.
///
/// Every `unsafe` method requires that the floats of `start` are there, that no other thread uses
/// them, and that the machine has the instruction set `S`.
#[derive(Clone, Copy)]
pub(super) struct Partial {
    pub rows: usize,
    /// Elements of a head, padded to whole vectors.
    pub width: usize,
    /// `[rows, width]` sums of values, `[rows, LANES]` sums of weights, `[rows]` maxima.
    pub start: *mut f32,
}

impl Partial {
    /// Returns the number of floats of a partial result.
    pub fn len(rows: usize, width: usize) -> usize {
        (rows * (width + LANES + 1)).next_multiple_of(16)
    }

    /// Returns the sums of values of a row, `[width]`.
    pub fn values(&self, row: usize) -> *mut f32 {
        self.start.wrapping_add(row * self.width)
    }

    /// Returns the sums of weights of a row, `[LANES]`.
    pub fn sums(&self, row: usize) -> *mut f32 {
        self.start.wrapping_add(self.rows * self.width + row * LANES)
    }

    /// Returns the place of the maximum score of a row.
    pub fn max(&self, row: usize) -> *mut f32 {
        self.start.wrapping_add(self.rows * (self.width + LANES) + row)
    }

    /// Returns the sum of the weights of a row.
    ///
    /// # Safety
    /// As [`Partial`] says; `row` is below `rows`.
    #[inline(always)]
    pub unsafe fn weight_sum<S: Simd>(&self, row: usize) -> f32 {
        // SAFETY: by the caller. Vectors of fewer lanes leave the rest at zero.
        unsafe { S::sum(S::load(self.sums(row))) }
    }

    /// Resets to the result of no positions.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    pub unsafe fn clear(&self) {
        // SAFETY: by the caller.
        unsafe {
            self.start.write_bytes(0, Self::len(self.rows, self.width));
            for row in 0..self.rows {
                *self.max(row) = f32::MIN;
            }
        }
    }

    /// Sets the maximum of a row to `max`, and rescales its sums to it.
    ///
    /// # Safety
    /// As [`Partial`] says; `row` is below `rows`.
    #[inline(always)]
    pub unsafe fn rescale<S: Simd>(&self, row: usize, max: f32) {
        // SAFETY: by the caller.
        unsafe {
            let old_max = self.max(row).replace(max);
            if old_max == max {
                return;
            }
            let factor = math::exp::<S>(S::splat(old_max - max));
            for i in (0..self.width).step_by(S::WIDTH) {
                let values = self.values(row).add(i);
                S::store(values, S::mul(S::load(values), factor));
            }
            for i in (0..LANES).step_by(S::WIDTH) {
                let sums = self.sums(row).add(i);
                S::store(sums, S::mul(S::load(sums), factor));
            }
        }
    }

    /// Adds the positions of `other`, which has the same shape.
    ///
    /// # Safety
    /// As [`Partial`] says, for both.
    #[inline(always)]
    pub unsafe fn merge<S: Simd>(&self, other: &Self) {
        // SAFETY: by the caller.
        unsafe {
            for row in 0..self.rows {
                let max = (*self.max(row)).max(*other.max(row));
                self.rescale::<S>(row, max);
                let factor = math::exp::<S>(S::splat(*other.max(row) - max));
                for i in (0..self.width).step_by(S::WIDTH) {
                    let values = self.values(row).add(i);
                    S::store(values, S::fma(S::load(other.values(row).add(i)), factor, S::load(values)));
                }
                for i in (0..LANES).step_by(S::WIDTH) {
                    let sums = self.sums(row).add(i);
                    S::store(sums, S::fma(S::load(other.sums(row).add(i)), factor, S::load(sums)));
                }
            }
        }
    }
}
