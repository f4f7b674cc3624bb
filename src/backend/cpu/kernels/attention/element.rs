//! Loads and encodes the elements of cached keys and values, in each format of the cache.

use std::marker::PhantomData;

use crate::simd::Simd;

/// Elements that are encoded together, and that share a scale in formats with scales.
pub(super) const BLOCK: usize = 32;

/// A format that kernels read.
pub(super) trait CacheElement {
    const BYTES: usize;
    /// Whether the elements of a block share a scale, in f16.
    const SCALED: bool;
    /// The format in which elements are stored apart from their scales.
    type Stored: CacheElement;

    /// Loads a vector of elements, without their scale.
    ///
    /// # Safety
    /// `from` is readable for `S::WIDTH` elements, and the machine has `S`.
    unsafe fn load<S: Simd>(from: *const u8) -> S::F;
}

/// A format of the cache.
pub(super) trait CacheFormat: CacheElement {
    /// Writes the elements of a block one after the other, and returns their scale as f16 bits, or
    /// 0 in a format without scales.
    ///
    /// # Safety
    /// `to` is writable for `BLOCK * BYTES` bytes, and the machine has `S`.
    unsafe fn encode<S: Simd>(x: &[f32; BLOCK], to: *mut u8) -> u16;
}

pub(super) struct CacheF32;
pub(super) struct CacheF16;
/// Blocks of int8 with a scale.
pub(super) struct CacheQ8;
/// The elements of format `E` converted to f32, with the same scales.
pub(super) struct Widened<E>(PhantomData<E>);

macro_rules! element {
    ($element:ty, $bytes:literal, $scaled:literal, $load:ident) => {
        impl CacheElement for $element {
            const BYTES: usize = $bytes;
            const SCALED: bool = $scaled;
            type Stored = Self;

            /// # Safety: as [`CacheElement::load`].
            #[inline(always)]
            unsafe fn load<S: Simd>(from: *const u8) -> S::F {
                // SAFETY: by the caller.
                unsafe { S::$load(from.cast()) }
            }
        }
    };
}

element!(CacheF32, 4, false, load);
element!(CacheF16, 2, false, load_f16);
element!(CacheQ8, 1, true, load_i8);

impl<E: CacheElement> CacheElement for Widened<E> {
    const BYTES: usize = CacheF32::BYTES;
    const SCALED: bool = E::SCALED;
    type Stored = CacheF32;

    /// # Safety: as [`CacheElement::load`].
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: by the caller.
        unsafe { CacheF32::load::<S>(from) }
    }
}

impl CacheFormat for CacheF32 {
    /// # Safety: as [`CacheFormat::encode`].
    #[inline(always)]
    unsafe fn encode<S: Simd>(x: &[f32; BLOCK], to: *mut u8) -> u16 {
        // SAFETY: by the caller.
        unsafe { to.copy_from_nonoverlapping(x.as_ptr().cast(), size_of_val(x)) };
        0
    }
}

impl CacheFormat for CacheF16 {
    /// # Safety: as [`CacheFormat::encode`].
    #[inline(always)]
    unsafe fn encode<S: Simd>(x: &[f32; BLOCK], to: *mut u8) -> u16 {
        for i in (0..BLOCK).step_by(S::WIDTH) {
            // SAFETY: by the caller.
            unsafe { S::store_f16(to.cast::<u16>().add(i), S::load(x.as_ptr().add(i))) };
        }
        0
    }
}

impl CacheFormat for CacheQ8 {
    /// # Safety: as [`CacheFormat::encode`].
    #[inline(always)]
    unsafe fn encode<S: Simd>(x: &[f32; BLOCK], to: *mut u8) -> u16 {
        // SAFETY: by the caller.
        unsafe {
            let mut largest = S::splat(0.0);
            for i in (0..BLOCK).step_by(S::WIDTH) {
                largest = S::max(largest, S::abs(S::load(x.as_ptr().add(i))));
            }
            let scale = S::max_lane(largest) / 127.0;
            let inverse = S::splat(if scale > 0.0 { 1.0 / scale } else { 0.0 });
            for i in (0..BLOCK).step_by(S::WIDTH) {
                S::store_bytes(to.add(i).cast(), S::to_i(S::mul(S::load(x.as_ptr().add(i)), inverse)));
            }
            half::f16::from_f32(scale).to_bits()
        }
    }
}
