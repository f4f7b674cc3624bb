//! What a section of the cache comes to for a unit's query rows, and how sections are joined.

use crate::{backend::cpu::kernels::math, simd::Simd};

/// Lanes that a row's weights are summed in.
const LANES: usize = 16;

/// A softmax on the way: for each row the largest score, the sum of the weights relative to it, and the sum of the
/// values so weighted.
#[derive(Clone, Copy)]
pub(super) struct Partial {
    pub rows: usize,
    /// Elements of a head, filled up to whole vectors.
    pub width: usize,
    /// `[rows, width]` of sums of values, `[rows, LANES]` of sums of weights, `[rows]` of largest scores.
    pub start: *mut f32,
}

impl Partial {
    /// Floats of one.
    pub fn len(rows: usize, width: usize) -> usize {
        (rows * (width + LANES + 1)).next_multiple_of(16)
    }

    pub fn values(&self, row: usize) -> *mut f32 {
        self.start.wrapping_add(row * self.width)
    }

    pub fn sums(&self, row: usize) -> *mut f32 {
        self.start.wrapping_add(self.rows * self.width + row * LANES)
    }

    pub fn largest(&self, row: usize) -> *mut f32 {
        self.start.wrapping_add(self.rows * (self.width + LANES) + row)
    }

    /// The sum of a row's weights.
    ///
    /// # Safety
    /// Its floats are there and this thread's alone, and the machine has `S`, as for all functions here.
    #[inline(always)]
    pub unsafe fn sum<S: Simd>(&self, row: usize) -> f32 {
        // SAFETY: by the caller. Narrower vectors leave the rest zero.
        unsafe { S::sum(S::load(self.sums(row))) }
    }

    /// Makes it that of no positions.
    ///
    /// # Safety
    /// Its floats are there and this thread's alone, as for all functions here.
    #[inline(always)]
    pub unsafe fn clear(&self) {
        // SAFETY: by the caller.
        unsafe {
            self.start.write_bytes(0, Self::len(self.rows, self.width));
            for row in 0..self.rows {
                *self.largest(row) = f32::MIN;
            }
        }
    }

    /// Raises a row's largest score, and makes its sums relative to it.
    ///
    /// # Safety
    /// As above, and the machine has `S`.
    #[inline(always)]
    pub unsafe fn raise<S: Simd>(&self, row: usize, largest: f32) {
        // SAFETY: by the caller.
        unsafe {
            let before = self.largest(row).replace(largest);
            if before == largest {
                return;
            }
            let fade = math::exp::<S>(S::splat(before - largest));
            for i in (0..self.width).step_by(S::WIDTH) {
                let values = self.values(row).add(i);
                S::store(values, S::mul(S::load(values), fade));
            }
            for i in (0..LANES).step_by(S::WIDTH) {
                let sums = self.sums(row).add(i);
                S::store(sums, S::mul(S::load(sums), fade));
            }
        }
    }

    /// Adds the positions of `other`, which has the same rows.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    pub unsafe fn join<S: Simd>(&self, other: &Self) {
        // SAFETY: by the caller.
        unsafe {
            for row in 0..self.rows {
                let largest = (*self.largest(row)).max(*other.largest(row));
                self.raise::<S>(row, largest);
                let weight = math::exp::<S>(S::splat(*other.largest(row) - largest));
                for i in (0..self.width).step_by(S::WIDTH) {
                    let values = self.values(row).add(i);
                    S::store(values, S::fma(S::load(other.values(row).add(i)), weight, S::load(values)));
                }
                for i in (0..LANES).step_by(S::WIDTH) {
                    let sums = self.sums(row).add(i);
                    S::store(sums, S::fma(S::load(other.sums(row).add(i)), weight, S::load(sums)));
                }
            }
        }
    }
}
