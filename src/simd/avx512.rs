//! Implements [`Simd`] with AVX-512 and VNNI: sixteen lanes, and a dot product of four bytes per
//! lane in one instruction.

use std::{arch::x86_64::*, marker::PhantomData};

use super::{MatrixUnit, NoUnit, Simd, SimdKernel, unsafe_methods};

/// x86-64 with AVX-512 F, BW, DQ, VL and VNNI, and the matrix unit `U`.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<U = NoUnit>(PhantomData<U>);

impl<U: MatrixUnit> Simd for Avx512<U> {
    const WIDTH: usize = 16;
    const SIGNED_BYTES: bool = false;
    type I = __m512i;
    type F = __m512;
    type Unit = U;

    unsafe_methods! {
        fn splat_i(x: i32) -> __m512i = _mm512_set1_epi32(x);
        fn load_i(from: *const u8) -> __m512i = _mm512_loadu_si512(from.cast());
        fn load_shorts(from: *const u8) -> __m512i = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
        fn load_bytes(from: *const u8) -> __m512i = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
        fn and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        fn or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        fn xor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        fn add_i(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        fn shl(a: __m512i, n: u32) -> __m512i = _mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn shr(a: __m512i, n: u32) -> __m512i = _mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn sar(a: __m512i, n: u32) -> __m512i = _mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn lookup(table: &[u8; 16], index: __m512i) -> __m512i =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), index);
        fn mul_shorts(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi16(a, b);
        fn mul_shorts_high(a: __m512i, b: __m512i) -> __m512i = _mm512_mulhi_epu16(a, b);
        fn gather(table: &[u32], index: __m512i) -> __m512i =
            _mm512_i32gather_epi32::<4>(index, table.as_ptr().cast());
        fn to_f(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
        fn as_f(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);
        fn store_i(to: *mut u8, a: __m512i) = _mm512_storeu_si512(to.cast(), a);
        fn store_bytes(to: *mut i8, a: __m512i) = _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(a));
        fn sum_i(a: __m512i) -> i32 = _mm512_reduce_add_epi32(a);

        fn splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        fn load(from: *const f32) -> __m512 = _mm512_loadu_ps(from);
        fn load_f16(from: *const u16) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
        fn load_bf16(from: *const u16) -> __m512 =
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))));
        fn load_i8(from: *const i8) -> __m512 = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())));
        fn store(to: *mut f32, a: __m512) = _mm512_storeu_ps(to, a);
        fn store_f16(to: *mut u16, a: __m512) =
            _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a));
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        fn abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        fn to_i(a: __m512) -> __m512i = _mm512_cvtps_epi32(a);
        fn sum(a: __m512) -> f32 = _mm512_reduce_add_ps(a);
        fn max_lane(a: __m512) -> f32 = _mm512_reduce_max_ps(a);

        fn dot4_accumulate(_bits: u32, sum: __m512i, codes: __m512i, x: __m512i) -> __m512i =
            _mm512_dpbusd_epi32(sum, codes, x);
        fn finish_dot(_bits: u32, sum: __m512i) -> __m512i = sum;
        fn prefetch(from: *const u8) = _mm_prefetch::<_MM_HINT_T0>(from.cast());
        fn prefetch_far(from: *const u8) = _mm_prefetch::<_MM_HINT_T1>(from.cast());
    }

    /// # Safety: as [`Simd::call`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    #[inline(never)]
    unsafe fn call<K: SimdKernel>(kernel: K) {
        // SAFETY: by the caller.
        unsafe { kernel.run::<Self>() }
    }

    #[inline(always)]
    fn dot_words(_bits: u32) -> usize {
        8
    }
}
