//! Provides vectors of 32-bit lanes: the operations that kernels are written in, and their
//! implementation for each instruction set.
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
pub(crate) use vector::{MatrixUnit, NoUnit, ROWS, Simd, SimdKernel};

/// Byte dot products: the part of [`Simd`] in which instruction sets with the same vectors `I`
/// differ. Each item has the meaning of its namesake in [`Simd`].
///
/// # Safety
/// Each method needs a machine that has the instruction set.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) trait ByteDot<I>: Copy + Send + Sync + 'static {
    const SIGNED_BYTES: bool;
    const SHORT_SUMS: bool = false;
    type Unit: MatrixUnit;

    #[inline(always)]
    fn dot_words(_bits: u32) -> usize {
        8
    }

    /// Runs a kernel for the set `S`, which has these byte dot products.
    ///
    /// # Safety
    /// As [`SimdKernel::run`] of the kernel.
    unsafe fn call<S: Simd, K: SimdKernel>(kernel: K);

    unsafe_methods! {
        /// Adds the dot product of four codes and four signed bytes of `x` to each lane of `sum`.
        fn dot4_accumulate(bits: u32, sum: I, codes: I, x: I) -> I;
    }

    /// Converts sums to an integer per lane; here they already are.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    unsafe fn finish_dot(_bits: u32, sum: I) -> I {
        sum
    }
}

/// Declares `unsafe` methods of [`Simd`], [`MatrixUnit`] and `ByteDot` (`fn name(..) -> T;`), or
/// defines each as an expression of intrinsics (`fn name(..) -> T = expression;`), always inlined.
///
/// # Safety
/// All have the contract of their trait: the machine has the instruction set, and pointers are
/// valid as the trait and the method say.
macro_rules! unsafe_methods {
    ($($(#[$attribute:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// The machine has the instruction set, and pointers are valid as the trait says.
        unsafe fn $name($($arg: $type),*) $(-> $result)?;
    )*};
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $body:expr;)*) => {$(
        #[inline(always)]
        #[allow(unused_unsafe, reason = "some expressions are safe")]
        unsafe fn $name($($arg: $type),*) $(-> $result)? {
            // SAFETY: by the caller, as the trait says.
            unsafe { $body }
        }
    )*};
}
use unsafe_methods;
