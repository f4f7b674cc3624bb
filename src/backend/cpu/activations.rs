//! Activations in 8 bits, for products with quantised weights.
//!
//! Each run of 32 elements becomes codes from -127 to 127 and a scale. Because weights are `scale * code - min`, a
//! product also needs the sum of the activations over each of the weights' groups, which are 16 or 32 wide; the sums
//! are made here, once for all matrices and rows.

use super::aligned::AlignedBytes;
use crate::quant::Simd;

/// Elements that share a scale.
pub(super) const BLOCK: usize = 32;

/// Quantised rows `[tokens, columns]`.
#[derive(Clone, Copy)]
pub(super) struct Activations {
    /// Elements in a row, a multiple of 32.
    pub columns: usize,
    /// `[tokens, columns]`.
    pub codes: *mut i8,
    /// `[tokens, columns / 32]`.
    pub scales: *mut f32,
    /// `[tokens, columns / 32]`: sums of 32, in the activations' own unit.
    pub sums32: *mut f32,
    /// `[tokens, columns / 16]`: sums of 16.
    pub sums16: *mut f32,
}

impl Activations {
    /// The bytes that `tokens` rows of `columns` take.
    pub fn bytes(tokens: usize, columns: usize) -> usize {
        tokens * (columns + columns / BLOCK * 16)
    }

    /// Lays rows of `columns` out in `memory`. Where it has no room for `tokens` of them, as when their reader's matrices
    /// are floats, there is nothing to be read or written.
    pub fn new(memory: &AlignedBytes, tokens: usize, columns: usize) -> Self {
        let blocks = tokens * (columns / BLOCK);
        let codes: *mut i8 = memory.as_ptr().cast();
        let scales = codes.wrapping_add(tokens * columns).cast::<f32>();
        let sums32 = scales.wrapping_add(blocks);
        Self { columns, codes, scales, sums32, sums16: sums32.wrapping_add(blocks) }
    }
}

/// Quantises row `token` from the floats at `x`.
///
/// # Safety
/// `x` has `columns` elements, the row lies within the memory and nobody else uses it, and the machine has `S`.
#[inline(always)]
pub(super) unsafe fn quantize<S: Simd>(x: *const f32, to: &Activations, token: usize) {
    // SAFETY: every access is below the row's end; the rest is by the caller.
    unsafe {
        let blocks = to.columns / BLOCK;
        for block in 0..blocks {
            let x = x.add(block * BLOCK);
            let mut largest = S::splat(0.0);
            for i in (0..BLOCK).step_by(S::WIDTH) {
                largest = S::max(largest, S::abs(S::load(x.add(i))));
            }
            let largest = S::max_lane(largest);
            let scale = largest / 127.0;
            let inverse = S::splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
            let at = token * blocks + block;
            let codes = to.codes.add(at * BLOCK);
            let mut sums = [0.0; 2];
            for (half, sum) in sums.iter_mut().enumerate() {
                let mut total = S::splat_i(0);
                for i in (half * 16..half * 16 + 16).step_by(S::WIDTH) {
                    let code = S::to_i(S::mul(S::load(x.add(i)), inverse));
                    S::store_bytes(codes.add(i), code);
                    total = S::add_i(total, code);
                }
                *sum = scale * S::sum_i(total) as f32;
                *to.sums16.add(2 * at + half) = *sum;
            }
            *to.scales.add(at) = scale;
            *to.sums32.add(at) = sums[0] + sums[1];
        }
    }
}
