//! The instruction sets, and which of them this machine has.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
pub(super) mod tests;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
pub(super) use portable::Portable;

/// Writes methods of [`Simd`](crate::quant::Simd) as one expression of intrinsics each.
#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
use methods;
