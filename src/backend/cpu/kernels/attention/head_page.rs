//! One head's keys or values of a page, and how they lie in it.
//!
//! Values lie position by position. Keys lie the other way round, element by element, and sixteen positions at a time:
//! then scores, too, are products of single numbers with vectors, and nothing is summed across a vector's lanes. The
//! scales follow, where the format has them: those of a block for all positions, then those of the next.

use super::{
    element::{BLOCK, Element, Format, Wide},
    product::Matrix,
};
use crate::{kv_cache::PAGE_POSITIONS, simd::Simd};

/// Columns of a matrix that lie together.
const GROUP: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;

/// One head's keys or values of a page.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    pub start: *mut u8,
    pub head_dim: usize,
}

impl Chunk {
    /// Elements of a position, filled up to a whole group.
    fn width(self) -> usize {
        self.head_dim.next_multiple_of(GROUP)
    }

    /// Keys as a matrix `[head_dim, PAGE_POSITIONS]`, from element `first` on.
    pub fn keys<E: Element>(self, first: usize) -> Matrix {
        let step = GROUP * E::BYTES;
        Matrix { start: self.start.wrapping_add(first * step), step, group: self.head_dim * step }
    }

    /// Values as a matrix `[PAGE_POSITIONS, head_dim]`, from element `first` on, a multiple of 16.
    pub fn values<E: Element>(self, first: usize) -> Matrix {
        let start = self.start.wrapping_add(first * E::BYTES);
        Matrix { start, step: self.width() * E::BYTES, group: GROUP * E::BYTES }
    }

    /// The scales `[PAGE_POSITIONS]` of the block that begins with element `first`.
    pub fn scales<E: Element>(self, first: usize) -> *mut u16 {
        let scales: *mut u16 = self.start.wrapping_add(PAGE_POSITIONS * self.width() * E::BYTES).cast();
        scales.wrapping_add(first / BLOCK * PAGE_POSITIONS)
    }

    /// Asks for a block's scales, and returns where its share of the other bytes begins, whichever these are.
    #[inline(always)]
    pub unsafe fn prefetch<S: Simd, E: Element>(self, first: usize) -> *const u8 {
        if E::SCALED {
            for line in (0..PAGE_POSITIONS * 2).step_by(LINE) {
                // SAFETY: prefetches may point anywhere.
                unsafe { S::prefetch_far(self.scales::<E>(first).cast::<u8>().wrapping_add(line)) };
            }
        }
        self.start.wrapping_add(first * PAGE_POSITIONS * E::BYTES)
    }

    /// Converts the elements once for many that read them: writes them to `to` as floats, with the same scales. Asks for
    /// what will be read `next`.
    ///
    /// # Safety
    /// `to` has room for them, and the machine has `S`.
    #[inline(always)]
    pub unsafe fn widen<S: Simd, E: Element>(self, to: *mut u8, next: Option<Self>) -> Self {
        let wide = Self { start: to, ..self };
        // SAFETY: by the caller; prefetches may point anywhere.
        unsafe {
            for i in (0..PAGE_POSITIONS * self.width()).step_by(S::WIDTH) {
                S::store(to.cast::<f32>().add(i), E::load::<S>(self.start.add(i * E::BYTES)));
                if let Some(next) = next {
                    S::prefetch_far(next.start.wrapping_add(i * E::BYTES));
                }
            }
            for first in (0..self.width()).step_by(BLOCK).filter(|_| E::SCALED) {
                wide.scales::<Wide<E>>(first).copy_from_nonoverlapping(self.scales::<E>(first), PAGE_POSITIONS);
            }
        }
        wide
    }

    /// Writes the key of one position.
    ///
    /// # Safety
    /// `x` has `head_dim` elements, nobody else uses the position, and the machine has `S`.
    #[inline(always)]
    pub unsafe fn write_key<S: Simd, E: Format>(self, position: usize, x: *const f32) {
        let Matrix { start, step, group } = self.keys::<E>(0);
        let to = start.wrapping_add(position / GROUP * group + position % GROUP * E::BYTES).cast_mut();
        // SAFETY: by the caller, the elements and their places are there.
        unsafe {
            self.encode::<S, E>(position, x, |first, elements| {
                for (i, element) in elements.chunks_exact(E::BYTES).enumerate() {
                    to.add((first + i) * step).copy_from_nonoverlapping(element.as_ptr(), E::BYTES);
                }
            });
        }
    }

    /// Writes the value of one position.
    ///
    /// # Safety
    /// As [`Chunk::write_key`].
    #[inline(always)]
    pub unsafe fn write_value<S: Simd, E: Format>(self, position: usize, x: *const f32) {
        let Matrix { start, step, .. } = self.values::<E>(0);
        let to = start.wrapping_add(position * step).cast_mut();
        // SAFETY: by the caller, the elements and their places are there.
        unsafe {
            self.encode::<S, E>(position, x, |first, elements| {
                to.add(first * E::BYTES).copy_from_nonoverlapping(elements.as_ptr(), elements.len());
            });
        }
    }

    /// Encodes a position's elements block by block: stores the scales, and hands the rest to `put`, with the number of
    /// the first element.
    #[inline(always)]
    unsafe fn encode<S: Simd, E: Format>(self, position: usize, x: *const f32, put: impl Fn(usize, &[u8])) {
        for first in (0..self.head_dim).step_by(BLOCK) {
            let len = BLOCK.min(self.head_dim - first);
            let (mut block, mut encoded) = ([0.0; BLOCK], [0; BLOCK * 4]);
            // SAFETY: by the caller of `write_key` and `write_value`.
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
