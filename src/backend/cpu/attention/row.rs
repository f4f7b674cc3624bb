//! How keys and values are read from the cache.

use crate::quant::Simd;

/// How a cached row is read.
pub(super) trait CacheRow {
    /// Elements `i` to `i + WIDTH` of the row; `i` is a multiple of `WIDTH`.
    unsafe fn load<S: Simd>(row: *const u8, i: usize) -> S::F;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Q80;

impl CacheRow for F32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, i: usize) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load(row.cast::<f32>().add(i)) }
    }
}

impl CacheRow for F16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, i: usize) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load_f16(row.cast::<u16>().add(i)) }
    }
}

impl CacheRow for Q80 {
    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, i: usize) -> S::F {
        // SAFETY: by the caller.
        unsafe {
            let block = row.add(i / 32 * 34);
            let scale = half::f16::from_bits(block.cast::<u16>().read_unaligned()).to_f32();
            S::mul(S::load_i8(block.add(2 + i % 32).cast()), S::splat(scale))
        }
    }
}
