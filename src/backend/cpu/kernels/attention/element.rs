//! The formats of cached keys and values.

use std::marker::PhantomData;

use crate::simd::Simd;

/// Elements that are encoded together, and that share a scale where the format has scales.
pub(super) const BLOCK: usize = 32;

/// How an element is read.
pub(super) trait Element {
    const BYTES: usize;
    /// Whether a block's elements have a scale in common, in half precision.
    const SCALED: bool;

    /// A vector of elements, without their scale.
    unsafe fn load<S: Simd>(from: *const u8) -> S::F;
}

/// A format of the cache.
pub(super) trait Format: Element {
    /// Stores a block's elements one after the other, and returns their scale.
    unsafe fn encode<S: Simd>(x: &[f32; BLOCK], to: *mut u8) -> u16;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Q80;
/// The elements of a format, converted to floats.
pub(super) struct Wide<E>(PhantomData<E>);

macro_rules! element {
    ($element:ty, $bytes:literal, $scaled:literal, $load:ident) => {
        impl Element for $element {
            const BYTES: usize = $bytes;
            const SCALED: bool = $scaled;

            #[inline(always)]
            unsafe fn load<S: Simd>(from: *const u8) -> S::F {
                // SAFETY: by the caller.
                unsafe { S::$load(from.cast()) }
            }
        }
    };
}

element!(F32, 4, false, load);
element!(F16, 2, false, load_f16);
element!(Q80, 1, true, load_i8);

impl<E: Element> Element for Wide<E> {
    const BYTES: usize = F32::BYTES;
    const SCALED: bool = E::SCALED;

    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: by the caller.
        unsafe { F32::load::<S>(from) }
    }
}

impl Format for F32 {
    #[inline(always)]
    unsafe fn encode<S: Simd>(x: &[f32; BLOCK], to: *mut u8) -> u16 {
        // SAFETY: by the caller.
        unsafe { to.copy_from_nonoverlapping(x.as_ptr().cast(), size_of_val(x)) };
        0
    }
}

impl Format for F16 {
    #[inline(always)]
    unsafe fn encode<S: Simd>(x: &[f32; BLOCK], to: *mut u8) -> u16 {
        for i in (0..BLOCK).step_by(S::WIDTH) {
            // SAFETY: by the caller.
            unsafe { S::store_f16(to.cast::<u16>().add(i), S::load(x.as_ptr().add(i))) };
        }
        0
    }
}

impl Format for Q80 {
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
