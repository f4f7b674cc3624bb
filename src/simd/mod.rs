//! Vectors of 32-bit lanes: the operations that kernels are written in, and each instruction set's.
#![cfg_attr(not(feature = "cpu"), allow(dead_code, unused_imports, reason = "only the CPU backend picks a set"))]

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
#[cfg(target_arch = "aarch64")]
mod i8mm;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod vector;

#[cfg(target_arch = "x86_64")]
pub(crate) use amx::Avx512Amx;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx_vnni::AvxVnni;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use i8mm::NeonI8mm;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::{Neon, NeonDotprod};
pub(crate) use portable::Portable;
pub(crate) use vector::{MatrixUnit, NoUnit, ROWS, Simd};

/// The part of [`Simd`] in which instruction sets with the same vectors differ: how products of
/// bytes are summed. Each item is what it is there, for vectors `I` of words.
///
/// # Safety
/// As there.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) trait Gather<I>: Copy + Send + Sync + 'static {
    const SIGNED_BYTES: bool;

    #[inline(always)]
    fn span(_bits: u32) -> usize {
        8
    }
    unsafe fn gather(bits: u32, sum: I, codes: I, x: I) -> I;
    #[inline(always)]
    unsafe fn total(_bits: u32, sum: I) -> I {
        sum
    }
}

/// Writes methods of [`Simd`] as one expression of intrinsics each.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) $(-> $result)? {
            // SAFETY: the machine has the instruction set, and pointers are readable or writable for what the method
            // names, as the trait's callers promise.
            unsafe { $body }
        }
    )*};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use methods;
