//! Lays out a head's keys or values in a page.
//!
//! Values are stored position by position, keys transposed: element by element, sixteen positions
//! side by side. Scores are then products of scalars with vectors, as weighted sums of values are,
//! and no sum goes across the lanes of a vector. In formats with scales these follow: the scales of
//! the first block of elements for all positions, then the scales of the next block.

use super::{
    cache_product::CacheMatrix,
    element::{BLOCK, CacheElement, CacheFormat, Widened},
};
use crate::{kv_cache::PAGE_POSITIONS, simd::Simd};

/// Columns of a matrix that are stored side by side.
const GROUP: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The keys or values of a head in a page.
#[derive(Clone, Copy)]
pub(super) struct HeadPage {
    /// The first byte.
    pub start: *mut u8,
    pub head_dim: usize,
}

impl HeadPage {
    /// Returns the elements of a position, padded to a whole group.
    fn width(self) -> usize {
        self.head_dim.next_multiple_of(GROUP)
    }

    /// Returns the keys from element `first` on, as a matrix `[head_dim, PAGE_POSITIONS]`.
    pub fn keys<E: CacheElement>(self, first: usize) -> CacheMatrix {
        let row_bytes = GROUP * E::BYTES;
        let start = self.start.wrapping_add(first * row_bytes);
        CacheMatrix { start, row_bytes, group_bytes: self.head_dim * row_bytes }
    }

    /// Returns the values from element `first` on, a multiple of 16, as a matrix
    /// `[PAGE_POSITIONS, head_dim]`.
    pub fn values<E: CacheElement>(self, first: usize) -> CacheMatrix {
        let start = self.start.wrapping_add(first * E::BYTES);
        CacheMatrix { start, row_bytes: self.width() * E::BYTES, group_bytes: GROUP * E::BYTES }
    }

    /// Returns the f16 scales, `[PAGE_POSITIONS]`, of the block whose first element is `first`.
    pub fn scales<E: CacheElement>(self, first: usize) -> *mut u16 {
        let scales: *mut u16 = self.start.wrapping_add(PAGE_POSITIONS * self.width() * E::BYTES).cast();
        scales.wrapping_add(first / BLOCK * PAGE_POSITIONS)
    }

    /// Prefetches the scales of a block, and returns the start of its share of the elements' bytes.
    ///
    /// # Safety
    /// The machine has `S`.
    #[inline(always)]
    pub unsafe fn prefetch<S: Simd, E: CacheElement>(self, first: usize) -> *const u8 {
        if E::SCALED {
            for line in (0..PAGE_POSITIONS * 2).step_by(LINE) {
                // SAFETY: by the caller; prefetches may name any address.
                unsafe { S::prefetch_far(self.scales::<E>(first).cast::<u8>().wrapping_add(line)) };
            }
        }
        self.start.wrapping_add(first * PAGE_POSITIONS * E::BYTES)
    }

    /// Converts the elements to f32 for several readers: writes them to `to`, followed by the same
    /// scales, and prefetches `next`.
    ///
    /// # Safety
    /// `self` is readable; `to` is writable for `PAGE_POSITIONS` padded positions of f32 and their
    /// scales; and the machine has `S`.
    #[inline(always)]
    pub unsafe fn widen<S: Simd, E: CacheElement>(self, to: *mut u8, next: Option<Self>) -> Self {
        let widened = Self { start: to, ..self };
        // SAFETY: by the caller; prefetches may name any address.
        unsafe {
            for i in (0..PAGE_POSITIONS * self.width()).step_by(S::WIDTH) {
                S::store(to.cast::<f32>().add(i), E::load::<S>(self.start.add(i * E::BYTES)));
                if let Some(next) = next {
                    S::prefetch_far(next.start.wrapping_add(i * E::BYTES));
                }
            }
            for first in (0..self.width()).step_by(BLOCK).filter(|_| E::SCALED) {
                widened.scales::<Widened<E>>(first).copy_from_nonoverlapping(self.scales::<E>(first), PAGE_POSITIONS);
            }
        }
        widened
    }

    /// Converts keys to values in f32, without scales: writes the elements of each of the first
    /// `positions` positions to `to`, one position after the other.
    ///
    /// # Safety
    /// `self` is readable keys of format `E`; `to` is writable for `PAGE_POSITIONS` padded
    /// positions of f32; and the machine has `S`.
    #[inline(always)]
    pub unsafe fn transpose<S: Simd, E: CacheElement>(self, to: *mut u8, positions: usize) -> Self {
        let CacheMatrix { start, row_bytes, group_bytes } = self.keys::<E>(0);
        let (out, width) = (to.cast::<f32>(), self.width());
        let mut lanes = [0.0; GROUP];
        // SAFETY: by the caller; groups of positions are whole, and a group past the last position
        // is not read.
        unsafe {
            for first in (0..positions).step_by(GROUP) {
                let group = start.add(first / GROUP * group_bytes);
                for element in 0..width {
                    for i in (0..GROUP).step_by(S::WIDTH).filter(|_| element < self.head_dim) {
                        let mut x = E::load::<S>(group.add(element * row_bytes + i * E::BYTES));
                        if E::SCALED {
                            x = S::mul(x, S::load_f16(self.scales::<E>(element).add(first + i)));
                        }
                        S::store(lanes.as_mut_ptr().add(i), x);
                    }
                    for (i, x) in lanes.iter_mut().enumerate() {
                        *out.add((first + i) * width + element) = std::mem::take(x);
                    }
                }
            }
        }
        Self { start: to, ..self }
    }

    /// Writes the key of one position.
    ///
    /// # Safety
    /// `x` is readable for `head_dim` elements, `self` is a page of format `E` that has the
    /// position, no other thread uses it, and the machine has `S`.
    #[inline(always)]
    pub unsafe fn write_key<S: Simd, E: CacheFormat>(self, position: usize, x: *const f32) {
        let CacheMatrix { start, row_bytes, group_bytes } = self.keys::<E>(0);
        let to = start.wrapping_add(position / GROUP * group_bytes + position % GROUP * E::BYTES).cast_mut();
        // SAFETY: by the caller.
        unsafe {
            self.encode::<S, E>(position, x, |first, elements| {
                for (i, element) in elements.chunks_exact(E::BYTES).enumerate() {
                    to.add((first + i) * row_bytes).copy_from_nonoverlapping(element.as_ptr(), E::BYTES);
                }
            });
        }
    }

    /// Writes the value of one position.
    ///
    /// # Safety
    /// As [`HeadPage::write_key`].
    #[inline(always)]
    pub unsafe fn write_value<S: Simd, E: CacheFormat>(self, position: usize, x: *const f32) {
        let CacheMatrix { start, row_bytes, .. } = self.values::<E>(0);
        let to = start.wrapping_add(position * row_bytes).cast_mut();
        // SAFETY: by the caller.
        unsafe {
            self.encode::<S, E>(position, x, |first, elements| {
                to.add(first * E::BYTES).copy_from_nonoverlapping(elements.as_ptr(), elements.len());
            });
        }
    }

    /// Encodes the elements of a position block by block: writes the scales, and calls `put` with
    /// the first element of each block and its encoded bytes.
    ///
    /// # Safety
    /// As [`HeadPage::write_key`].
    #[inline(always)]
    unsafe fn encode<S: Simd, E: CacheFormat>(self, position: usize, x: *const f32, put: impl Fn(usize, &[u8])) {
        for first in (0..self.head_dim).step_by(BLOCK) {
            let len = BLOCK.min(self.head_dim - first);
            let (mut block, mut encoded) = ([0.0; BLOCK], [0; BLOCK * 4]);
            // SAFETY: by the caller.
            unsafe {
                block.as_mut_ptr().copy_from_nonoverlapping(x.add(first), len);
                let scale = E::encode::<S>(&block, encoded.as_mut_ptr());
                if E::SCALED {
                    self.scales::<E>(first).add(position).write_unaligned(scale);
                }
            }
            put(first, &encoded[..len * E::BYTES]);
        }
    }
}
