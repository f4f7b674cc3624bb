//! Implements [`Simd`] with AVX2, FMA and F16C: eight lanes. Byte products are summed in 16 bits as
//! long as the sums fit.

use std::{arch::x86_64::*, marker::PhantomData};

use super::{ByteDot, NoUnit, Simd, SimdKernel, unsafe_methods};

/// x86-64 with AVX2, FMA and F16C, and the instructions of the byte dot product `D`.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<D = Maddubs>(PhantomData<D>);

impl<D: ByteDot<__m256i>> Simd for Avx2<D> {
    const WIDTH: usize = 8;
    const SIGNED_BYTES: bool = D::SIGNED_BYTES;
    const SHORT_SUMS: bool = D::SHORT_SUMS;
    type I = __m256i;
    type F = __m256;
    type Unit = D::Unit;

    unsafe_methods! {
        fn splat_i(x: i32) -> __m256i = _mm256_set1_epi32(x);
        fn load_i(from: *const u8) -> __m256i = _mm256_loadu_si256(from.cast());
        fn load_shorts(from: *const u8) -> __m256i = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
        fn load_bytes(from: *const u8) -> __m256i = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
        fn and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        fn or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        fn xor(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
        fn add_i(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        fn shl(a: __m256i, n: u32) -> __m256i = _mm256_sll_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn shr(a: __m256i, n: u32) -> __m256i = _mm256_srl_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn sar(a: __m256i, n: u32) -> __m256i = _mm256_sra_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn lookup(table: &[u8; 16], index: __m256i) -> __m256i =
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), index);
        fn mul_shorts(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi16(a, b);
        fn mul_shorts_high(a: __m256i, b: __m256i) -> __m256i = _mm256_mulhi_epu16(a, b);
        fn gather(table: &[u32], index: __m256i) -> __m256i =
            _mm256_i32gather_epi32::<4>(table.as_ptr().cast(), index);
        fn to_f(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
        fn as_f(a: __m256i) -> __m256 = _mm256_castsi256_ps(a);
        fn store_i(to: *mut u8, a: __m256i) = _mm256_storeu_si256(to.cast(), a);
        fn store_bytes(to: *mut i8, a: __m256i) = {
            let halves = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            _mm_storel_epi64(to.cast(), _mm_packs_epi16(halves, halves));
        };
        fn sum_i(a: __m256i) -> i32 = {
            let a = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let a = _mm_add_epi32(a, _mm_shuffle_epi32::<0b_01_00_11_10>(a));
            _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32::<0b_10_11_00_01>(a)))
        };

        fn splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        fn load(from: *const f32) -> __m256 = _mm256_loadu_ps(from);
        fn load_f16(from: *const u16) -> __m256 = _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
        fn load_bf16(from: *const u16) -> __m256 =
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()))));
        fn load_i8(from: *const i8) -> __m256 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())));
        fn store(to: *mut f32, a: __m256) = _mm256_storeu_ps(to, a);
        fn store_f16(to: *mut u16, a: __m256) =
            _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a));
        fn add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        fn sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        fn mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        fn div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fn max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        fn min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fn fnma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
        fn abs(a: __m256) -> __m256 = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        fn to_i(a: __m256) -> __m256i = _mm256_cvtps_epi32(a);
        fn sum(a: __m256) -> f32 = {
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        };
        fn max_lane(a: __m256) -> f32 = {
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        };

        fn dot4_accumulate(bits: u32, sum: __m256i, codes: __m256i, x: __m256i) -> __m256i =
            D::dot4_accumulate(bits, sum, codes, x);
        fn finish_dot(bits: u32, sum: __m256i) -> __m256i = D::finish_dot(bits, sum);
        fn prefetch(from: *const u8) = _mm_prefetch::<_MM_HINT_T0>(from.cast());
        fn prefetch_far(from: *const u8) = _mm_prefetch::<_MM_HINT_T1>(from.cast());
    }

    #[inline(always)]
    fn dot_words(bits: u32) -> usize {
        D::dot_words(bits)
    }

    /// # Safety: as [`Simd::call`].
    #[inline(always)]
    unsafe fn call<K: SimdKernel>(kernel: K) {
        // SAFETY: by the caller.
        unsafe { D::call::<Self, K>(kernel) }
    }
}

/// Byte dot products with AVX2 alone, by `vpmaddubsw`.
#[derive(Clone, Copy)]
pub(crate) struct Maddubs;

impl ByteDot<__m256i> for Maddubs {
    const SIGNED_BYTES: bool = true;
    const SHORT_SUMS: bool = true;
    type Unit = NoUnit;

    unsafe_methods! {
        fn dot4_accumulate(bits: u32, sum: __m256i, codes: __m256i, x: __m256i) -> __m256i = {
            if bits <= 6 {
                _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x))
            } else {
                // The first operand must be unsigned: multiply |code| by x with the code's sign. It
                // is exact, since 2 * 128 * 127 fits in 16 bits.
                let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed));
                _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            }
        };
        fn finish_dot(bits: u32, sum: __m256i) -> __m256i =
            if bits <= 6 { _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) } else { sum };
    }

    #[inline(always)]
    fn dot_words(bits: u32) -> usize {
        // A 16-bit sum takes two products of 127 and 2^bits - 1 per word: 8, 4 and 2 words stay
        // below 2^15.
        match bits {
            5 => 4,
            6 => 2,
            _ => 8,
        }
    }

    /// # Safety: as [`ByteDot::call`].
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline(never)]
    unsafe fn call<S: Simd, K: SimdKernel>(kernel: K) {
        // SAFETY: by the caller.
        unsafe { kernel.run::<S>() }
    }
}
