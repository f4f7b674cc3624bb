//! Quantizes activations to int8, for products with quantized weights.
//!
//! Each block of 32 elements becomes integers from -127 to 127 and a scale. Because a weight is
//! `scale * code - min`, a product also needs the sum of the activations over each group of the
//! weights, which has 16 or 32 columns; the sums are computed here, once for all matrices and rows.
//!
//! Products go through all tokens for a chunk of columns at a time, so memory has that order. In
//! the order of a matrix, rows would lie a power of two apart, and a few tokens would exhaust the
//! ways of the cache.

use crate::{backend::cpu::memory::aligned::AlignedBytes, simd::Simd};

/// Elements that share a scale.
pub(crate) const BLOCK: usize = 32;
/// Columns of a chunk.
pub(crate) const CHUNK: usize = 256;

/// Rows `[tokens, columns]` in int8, chunk by chunk. The last chunk has full size; its columns past
/// the end of the rows are neither written nor read.
#[derive(Clone, Copy)]
pub(crate) struct Q8Activations {
    tokens: usize,
    /// Elements in a row, a multiple of 32.
    pub columns: usize,
    first: Q8Chunk,
}

/// `CHUNK` columns of all tokens.
#[derive(Clone, Copy)]
pub(crate) struct Q8Chunk {
    /// `[tokens, CHUNK]`.
    pub q8: *mut i8,
    /// `[tokens, CHUNK / 32]`.
    pub scales: *mut f32,
    /// `[tokens, CHUNK / 32]`: sums of 32 activations.
    pub sums32: *mut f32,
    /// `[tokens, CHUNK / 16]`: sums of 16 activations.
    pub sums16: *mut f32,
}

impl Q8Activations {
    /// Returns the bytes of `tokens` rows of `columns` elements.
    pub fn bytes(tokens: usize, columns: usize) -> usize {
        let columns = columns.next_multiple_of(CHUNK);
        tokens * (columns + columns / BLOCK * 16)
    }

    /// Lays out rows in `memory`, which may be too small only if the rows are never written and
    /// read.
    pub fn new(memory: &AlignedBytes, tokens: usize, columns: usize) -> Self {
        Self::at(memory.as_ptr(), tokens, columns)
    }

    /// Lays out rows from `start` on, which is aligned to [`AlignedBytes::ALIGN`].
    pub fn at(start: *mut u8, tokens: usize, columns: usize) -> Self {
        let q8: *mut i8 = start.cast();
        let elements = tokens * columns.next_multiple_of(CHUNK);
        let scales = q8.wrapping_add(elements).cast::<f32>();
        let sums32 = scales.wrapping_add(elements / BLOCK);
        let sums16 = sums32.wrapping_add(elements / BLOCK);
        Self { tokens, columns, first: Q8Chunk { q8, scales, sums32, sums16 } }
    }

    /// Returns the rows from `token` on.
    pub fn skip(&self, token: usize) -> Self {
        Self { first: self.chunk(0, token), ..*self }
    }

    /// Copies row `from` to row `to`.
    ///
    /// # Safety
    /// Both rows lie within the memory and differ, row `from` has been written, and no other thread
    /// writes either or reads row `to`.
    pub unsafe fn copy(&self, from: usize, to: usize) {
        for index in 0..self.columns.div_ceil(CHUNK) {
            let [from, to] = [self.chunk(index, from), self.chunk(index, to)];
            // SAFETY: by the caller; chunks are whole, also past the end of the rows.
            unsafe {
                to.q8.copy_from_nonoverlapping(from.q8, CHUNK);
                to.scales.copy_from_nonoverlapping(from.scales, CHUNK / BLOCK);
                to.sums32.copy_from_nonoverlapping(from.sums32, CHUNK / BLOCK);
                to.sums16.copy_from_nonoverlapping(from.sums16, CHUNK / 16);
            }
        }
    }

    /// Returns chunk `index` from `token` on.
    #[inline(always)]
    pub fn chunk(&self, index: usize, token: usize) -> Q8Chunk {
        let row = index * self.tokens + token;
        Q8Chunk {
            q8: self.first.q8.wrapping_add(row * CHUNK),
            scales: self.first.scales.wrapping_add(row * (CHUNK / BLOCK)),
            sums32: self.first.sums32.wrapping_add(row * (CHUNK / BLOCK)),
            sums16: self.first.sums16.wrapping_add(row * (CHUNK / 16)),
        }
    }
}

/// Quantizes the floats at `x` into row `token`.
///
/// # Safety
/// `x` is readable for `to.columns` elements, the row lies within the memory, no other thread uses
/// it, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn quantize<S: Simd>(x: *const f32, to: &Q8Activations, token: usize) {
    // SAFETY: by the caller; every access is below the end of the row.
    unsafe {
        for first in (0..to.columns).step_by(CHUNK) {
            let chunk = to.chunk(first / CHUNK, token);
            for block in 0..CHUNK.min(to.columns - first) / BLOCK {
                quantize_block::<S>(x.add(first + block * BLOCK), &chunk, block);
            }
        }
    }
}

/// Quantizes the 32 floats at `x` into block `block` of the chunk's first token.
///
/// # Safety
/// As [`quantize`], for these 32 elements.
#[inline(always)]
unsafe fn quantize_block<S: Simd>(x: *const f32, to: &Q8Chunk, block: usize) {
    // SAFETY: by the caller.
    unsafe {
        let mut largest = S::splat(0.0);
        for i in (0..BLOCK).step_by(S::WIDTH) {
            largest = S::max(largest, S::abs(S::load(x.add(i))));
        }
        let largest = S::max_lane(largest);
        let scale = largest / 127.0;
        let inverse = S::splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
        let q8 = to.q8.add(block * BLOCK);
        let mut sums = [0.0; 2];
        for (half, sum) in sums.iter_mut().enumerate() {
            let mut total = S::splat_i(0);
            for i in (half * 16..half * 16 + 16).step_by(S::WIDTH) {
                let rounded = S::to_i(S::mul(S::load(x.add(i)), inverse));
                S::store_bytes(q8.add(i), rounded);
                total = S::add_i(total, rounded);
            }
            *sum = scale * S::sum_i(total) as f32;
            *to.sums16.add(2 * block + half) = *sum;
        }
        *to.scales.add(block) = scale;
        *to.sums32.add(block) = sums[0] + sums[1];
    }
}
