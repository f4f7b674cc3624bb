//! Activations in 8 bits, for products with quantised weights.
//!
//! Each run of 32 elements becomes codes from -127 to 127 and a scale. Because weights are `scale * code - min`, a
//! product also needs the sum of the activations over each of the weights' groups, which are 16 or 32 wide; the sums
//! are made here, once for all matrices and rows.
//!
//! Products take a chunk of columns at a time and then go through all tokens, so that is the order in memory. In the
//! order of a matrix, rows would lie a power of two apart, and a few tokens would exhaust the cache's ways.

use crate::{backend::cpu::memory::aligned::AlignedBytes, simd::Simd};

/// Elements that share a scale.
pub(crate) const BLOCK: usize = 32;
/// Columns of a chunk.
pub(crate) const CHUNK: usize = 256;

/// Quantised rows `[tokens, columns]`, chunk by chunk. The last chunk is as large as the others, and its columns past
/// the rows' end are neither written nor read.
#[derive(Clone, Copy)]
pub(crate) struct Activations {
    tokens: usize,
    /// Elements in a row, a multiple of 32.
    pub columns: usize,
    first: Chunk,
}

/// Some columns of all tokens.
#[derive(Clone, Copy)]
pub(crate) struct Chunk {
    /// `[tokens, CHUNK]`.
    pub codes: *mut i8,
    /// `[tokens, CHUNK / 32]`.
    pub scales: *mut f32,
    /// `[tokens, CHUNK / 32]`: sums of 32, in the activations' own unit.
    pub sums32: *mut f32,
    /// `[tokens, CHUNK / 16]`: sums of 16.
    pub sums16: *mut f32,
}

impl Activations {
    /// The bytes that `tokens` rows of `columns` take.
    pub fn bytes(tokens: usize, columns: usize) -> usize {
        let columns = columns.next_multiple_of(CHUNK);
        tokens * (columns + columns / BLOCK * 16)
    }

    /// Lays rows of `columns` out in `memory`. Where it has no room for `tokens` of them, as when their reader's matrices
    /// are floats, there is nothing to be read or written.
    pub fn new(memory: &AlignedBytes, tokens: usize, columns: usize) -> Self {
        Self::at(memory.as_ptr(), tokens, columns)
    }

    /// Lays them out from `start` on, which is aligned as [`AlignedBytes`] are.
    pub fn at(start: *mut u8, tokens: usize, columns: usize) -> Self {
        let codes: *mut i8 = start.cast();
        let elements = tokens * columns.next_multiple_of(CHUNK);
        let scales = codes.wrapping_add(elements).cast::<f32>();
        let sums32 = scales.wrapping_add(elements / BLOCK);
        let sums16 = sums32.wrapping_add(elements / BLOCK);
        Self { tokens, columns, first: Chunk { codes, scales, sums32, sums16 } }
    }

    /// The rows from `token` on.
    pub fn from(&self, token: usize) -> Self {
        Self { first: self.chunk(0, token), ..*self }
    }

    /// Copies row `from` to row `to`.
    ///
    /// # Safety
    /// Both lie within the memory, the first has been written, and nobody else uses the second.
    pub unsafe fn copy(&self, from: usize, to: usize) {
        for index in 0..self.columns.div_ceil(CHUNK) {
            let [from, to] = [self.chunk(index, from), self.chunk(index, to)];
            // SAFETY: chunks are whole, also those past the rows' end.
            unsafe {
                to.codes.copy_from_nonoverlapping(from.codes, CHUNK);
                to.scales.copy_from_nonoverlapping(from.scales, CHUNK / BLOCK);
                to.sums32.copy_from_nonoverlapping(from.sums32, CHUNK / BLOCK);
                to.sums16.copy_from_nonoverlapping(from.sums16, CHUNK / 16);
            }
        }
    }

    /// Chunk `index` from token `token` on.
    #[inline(always)]
    pub fn chunk(&self, index: usize, token: usize) -> Chunk {
        let row = index * self.tokens + token;
        Chunk {
            codes: self.first.codes.wrapping_add(row * CHUNK),
            scales: self.first.scales.wrapping_add(row * (CHUNK / BLOCK)),
            sums32: self.first.sums32.wrapping_add(row * (CHUNK / BLOCK)),
            sums16: self.first.sums16.wrapping_add(row * (CHUNK / 16)),
        }
    }
}

/// Quantises row `token` from the floats at `x`.
///
/// # Safety
/// `x` has `columns` elements, the row lies within the memory and nobody else uses it, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn quantize<S: Simd>(x: *const f32, to: &Activations, token: usize) {
    // SAFETY: every access is below the row's end; the rest is by the caller.
    unsafe {
        for first in (0..to.columns).step_by(CHUNK) {
            let chunk = to.chunk(first / CHUNK, token);
            for block in 0..CHUNK.min(to.columns - first) / BLOCK {
                quantize_block::<S>(x.add(first + block * BLOCK), &chunk, block);
            }
        }
    }
}

#[inline(always)]
unsafe fn quantize_block<S: Simd>(x: *const f32, to: &Chunk, block: usize) {
    // SAFETY: by the caller of `quantize`.
    unsafe {
        let mut largest = S::splat(0.0);
        for i in (0..BLOCK).step_by(S::WIDTH) {
            largest = S::max(largest, S::abs(S::load(x.add(i))));
        }
        let largest = S::max_lane(largest);
        let scale = largest / 127.0;
        let inverse = S::splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
        let codes = to.codes.add(block * BLOCK);
        let mut sums = [0.0; 2];
        for (half, sum) in sums.iter_mut().enumerate() {
            let mut total = S::splat_i(0);
            for i in (half * 16..half * 16 + 16).step_by(S::WIDTH) {
                let code = S::to_i(S::mul(S::load(x.add(i)), inverse));
                S::store_bytes(codes.add(i), code);
                total = S::add_i(total, code);
            }
            *sum = scale * S::sum_i(total) as f32;
            *to.sums16.add(2 * block + half) = *sum;
        }
        *to.scales.add(block) = scale;
        *to.sums32.add(block) = sums[0] + sums[1];
    }
}
