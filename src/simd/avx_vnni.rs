//! Adds AVX-VNNI to AVX2: a dot product of four bytes per lane in one instruction.

use std::arch::x86_64::*;

use super::{Avx2, ByteDot, NoUnit, Simd, SimdKernel, unsafe_methods};

/// x86-64 with AVX2, FMA, F16C and AVX-VNNI.
pub(crate) type AvxVnni = Avx2<Dpbusd>;

/// Byte dot products with AVX-VNNI, by `vpdpbusd`.
#[derive(Clone, Copy)]
pub(crate) struct Dpbusd;

impl ByteDot<__m256i> for Dpbusd {
    const SIGNED_BYTES: bool = false;
    type Unit = NoUnit;

    unsafe_methods! {
        fn dot4_accumulate(_bits: u32, sum: __m256i, codes: __m256i, x: __m256i) -> __m256i =
            _mm256_dpbusd_avx_epi32(sum, codes, x);
    }

    /// # Safety: as [`ByteDot::call`].
    #[target_feature(enable = "avxvnni,avx2,fma,f16c")]
    #[inline(never)]
    unsafe fn call<S: Simd, K: SimdKernel>(kernel: K) {
        // SAFETY: by the caller.
        unsafe { kernel.run::<S>() }
    }
}
