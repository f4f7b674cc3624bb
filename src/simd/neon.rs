//! Implements [`Simd`] with NEON, with or without the dot products of Armv8.2: eight lanes in two
//! registers, so that a loaded or broadcast value serves eight rows instead of four.
//!
//! Conversions of f16, dot products and prefetches are inline assembly, since their intrinsics are
//! unstable.

use std::{
    arch::{aarch64::*, asm},
    marker::PhantomData,
};

use super::{ByteDot, NoUnit, Simd, SimdKernel, unsafe_methods};

type I = [int32x4_t; 2];
type F = [float32x4_t; 2];

/// AArch64 with NEON, and the instructions of the byte dot product `D`.
#[derive(Clone, Copy)]
pub(crate) struct Neon<D = WideningProducts>(PhantomData<D>);

/// AArch64 with NEON and its dot products.
pub(crate) type NeonDotprod = Neon<Sdot>;

/// Applies an intrinsic to both registers of its arguments.
macro_rules! both {
    ($intrinsic:ident($($arg:ident),+)) => {
        [$intrinsic($($arg[0]),+), $intrinsic($($arg[1]),+)]
    };
}

/// Widens both halves of a vector of 16-bit numbers.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn widen(a: uint16x8_t) -> I {
    // SAFETY: by the caller, the machine has NEON.
    unsafe { [vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(a))), vreinterpretq_s32_u32(vmovl_high_u16(a))] }
}

/// Shifts words left by `n` bits, or right by `-n` bits, filled with zeros.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn shift(a: int32x4_t, n: i32) -> int32x4_t {
    // SAFETY: by the caller, the machine has NEON.
    unsafe { vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(n))) }
}

/// Replaces each byte of `index` by that entry of `table`.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn entries(table: uint8x16_t, index: int32x4_t) -> int32x4_t {
    // SAFETY: by the caller, the machine has NEON.
    unsafe { vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(index))) }
}

/// Multiplies the 16-bit halves of words, modulo 2^16.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn multiply_shorts(a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: by the caller, the machine has NEON.
    unsafe { vreinterpretq_s32_s16(vmulq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b))) }
}

/// Multiplies the unsigned 16-bit halves of words, and divides the products by 2^16.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn multiply_shorts_high(a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: by the caller, the machine has NEON.
    unsafe {
        let (a, b) = (vreinterpretq_u16_s32(a), vreinterpretq_u16_s32(b));
        let low = vreinterpretq_u16_u32(vmull_u16(vget_low_u16(a), vget_low_u16(b)));
        vreinterpretq_s32_u16(vuzp2q_u16(low, vreinterpretq_u16_u32(vmull_high_u16(a, b))))
    }
}

/// Returns the entry of `table` for each word of `index`.
///
/// # Safety
/// The table has the entries, and the machine has NEON.
#[inline(always)]
unsafe fn gathered(table: *const u32, index: int32x4_t) -> int32x4_t {
    // SAFETY: by the caller.
    unsafe {
        let mut entries = [0; 4];
        vst1q_s32(entries.as_mut_ptr(), index);
        let entries = entries.map(|index| *table.add(index as usize));
        vreinterpretq_s32_u32(vld1q_u32(entries.as_ptr()))
    }
}

impl<D: ByteDot<int32x4_t>> Simd for Neon<D> {
    const WIDTH: usize = 8;
    const SIGNED_BYTES: bool = D::SIGNED_BYTES;
    const SHORT_SUMS: bool = D::SHORT_SUMS;
    type I = I;
    type F = F;
    type Unit = D::Unit;

    unsafe_methods! {
        fn splat_i(x: i32) -> I = [vdupq_n_s32(x); 2];
        fn load_i(from: *const u8) -> I = [vld1q_s32(from.cast()), vld1q_s32(from.add(16).cast())];
        fn load_shorts(from: *const u8) -> I = widen(vld1q_u16(from.cast()));
        fn load_bytes(from: *const u8) -> I = widen(vmovl_u8(vld1_u8(from)));
        fn and(a: I, b: I) -> I = both!(vandq_s32(a, b));
        fn or(a: I, b: I) -> I = both!(vorrq_s32(a, b));
        fn xor(a: I, b: I) -> I = both!(veorq_s32(a, b));
        fn add_i(a: I, b: I) -> I = both!(vaddq_s32(a, b));
        fn shl(a: I, n: u32) -> I = [shift(a[0], n as i32), shift(a[1], n as i32)];
        fn shr(a: I, n: u32) -> I = [shift(a[0], -(n as i32)), shift(a[1], -(n as i32))];
        fn sar(a: I, n: u32) -> I = {
            let n = [vdupq_n_s32(-(n as i32)); 2];
            both!(vshlq_s32(a, n))
        };
        fn lookup(table: &[u8; 16], index: I) -> I = {
            let table = [vld1q_u8(table.as_ptr()); 2];
            both!(entries(table, index))
        };
        fn mul_shorts(a: I, b: I) -> I = both!(multiply_shorts(a, b));
        fn mul_shorts_high(a: I, b: I) -> I = both!(multiply_shorts_high(a, b));
        fn gather(table: &[u32], index: I) -> I = {
            let table = [table.as_ptr(); 2];
            both!(gathered(table, index))
        };
        fn to_f(a: I) -> F = both!(vcvtq_f32_s32(a));
        fn as_f(a: I) -> F = both!(vreinterpretq_f32_s32(a));
        fn store_i(to: *mut u8, a: I) = {
            vst1q_s32(to.cast(), a[0]);
            vst1q_s32(to.add(16).cast(), a[1]);
        };
        fn store_bytes(to: *mut i8, a: I) = vst1_s8(to, vmovn_s16(vcombine_s16(vmovn_s32(a[0]), vmovn_s32(a[1]))));
        fn sum_i(a: I) -> i32 = vaddvq_s32(vaddq_s32(a[0], a[1]));

        fn splat(x: f32) -> F = [vdupq_n_f32(x); 2];
        fn load(from: *const f32) -> F = [vld1q_f32(from), vld1q_f32(from.add(4))];
        fn load_f16(from: *const u16) -> F = {
            let (low, high): (float32x4_t, float32x4_t);
            asm!(
                "fcvtl {low:v}.4s, {halves:v}.4h",
                "fcvtl2 {high:v}.4s, {halves:v}.8h",
                halves = in(vreg) vld1q_u16(from),
                low = out(vreg) low,
                high = lateout(vreg) high,
                options(pure, nomem, nostack),
            );
            [low, high]
        };
        fn load_bf16(from: *const u16) -> F = {
            let upper = Self::shl(widen(vld1q_u16(from)), 16);
            both!(vreinterpretq_f32_s32(upper))
        };
        fn load_i8(from: *const i8) -> F = {
            let shorts = vmovl_s8(vld1_s8(from));
            [vcvtq_f32_s32(vmovl_s16(vget_low_s16(shorts))), vcvtq_f32_s32(vmovl_high_s16(shorts))]
        };
        fn store(to: *mut f32, a: F) = {
            vst1q_f32(to, a[0]);
            vst1q_f32(to.add(4), a[1]);
        };
        fn store_f16(to: *mut u16, a: F) = {
            let halves: uint16x8_t;
            asm!(
                "fcvtn {halves:v}.4h, {low:v}.4s",
                "fcvtn2 {halves:v}.8h, {high:v}.4s",
                low = in(vreg) a[0],
                high = in(vreg) a[1],
                halves = out(vreg) halves,
                options(pure, nomem, nostack),
            );
            vst1q_u16(to, halves);
        };
        fn add(a: F, b: F) -> F = both!(vaddq_f32(a, b));
        fn sub(a: F, b: F) -> F = both!(vsubq_f32(a, b));
        fn mul(a: F, b: F) -> F = both!(vmulq_f32(a, b));
        fn div(a: F, b: F) -> F = both!(vdivq_f32(a, b));
        fn max(a: F, b: F) -> F = both!(vmaxq_f32(a, b));
        fn min(a: F, b: F) -> F = both!(vminq_f32(a, b));
        fn fma(a: F, b: F, c: F) -> F = both!(vfmaq_f32(c, a, b));
        fn fnma(a: F, b: F, c: F) -> F = both!(vfmsq_f32(c, a, b));
        fn abs(a: F) -> F = both!(vabsq_f32(a));
        fn to_i(a: F) -> I = both!(vcvtnq_s32_f32(a));
        fn sum(a: F) -> f32 = vaddvq_f32(vaddq_f32(a[0], a[1]));
        fn max_lane(a: F) -> f32 = vmaxvq_f32(vmaxq_f32(a[0], a[1]));

        fn dot4_accumulate(bits: u32, sum: I, codes: I, x: I) -> I =
            [D::dot4_accumulate(bits, sum[0], codes[0], x[0]), D::dot4_accumulate(bits, sum[1], codes[1], x[1])];
        fn finish_dot(bits: u32, sum: I) -> I = [D::finish_dot(bits, sum[0]), D::finish_dot(bits, sum[1])];
        fn prefetch(from: *const u8) =
            asm!("prfm pldl1keep, [{from}]", from = in(reg) from.addr(), options(nomem, nostack, preserves_flags));
        fn prefetch_far(from: *const u8) =
            asm!("prfm pldl2keep, [{from}]", from = in(reg) from.addr(), options(nomem, nostack, preserves_flags));
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

/// Converts codes to signed bytes: subtracts 128 from codes of 8 bits, and returns shorter ones
/// unchanged.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
pub(super) unsafe fn signed(bits: u32, codes: int32x4_t) -> int8x16_t {
    // SAFETY: by the caller, the machine has NEON.
    unsafe {
        let codes = vreinterpretq_s8_s32(codes);
        if bits == 8 { veorq_s8(codes, vdupq_n_s8(-128)) } else { codes }
    }
}

/// Byte dot products with Armv8.2's `sdot`.
#[derive(Clone, Copy)]
pub(crate) struct Sdot;

impl ByteDot<int32x4_t> for Sdot {
    const SIGNED_BYTES: bool = true;
    type Unit = NoUnit;

    unsafe_methods! {
        fn dot4_accumulate(bits: u32, sum: int32x4_t, codes: int32x4_t, x: int32x4_t) -> int32x4_t = {
            let mut sum = sum;
            asm!(
                "sdot {sum:v}.4s, {codes:v}.16b, {x:v}.16b",
                sum = inout(vreg) sum,
                codes = in(vreg) signed(bits, codes),
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags),
            );
            sum
        };
    }

    /// # Safety: as [`ByteDot::call`].
    #[target_feature(enable = "neon,dotprod")]
    #[inline(never)]
    unsafe fn call<S: Simd, K: SimdKernel>(kernel: K) {
        // SAFETY: by the caller.
        unsafe { kernel.run::<S>() }
    }
}

/// Byte dot products with NEON alone.
#[derive(Clone, Copy)]
pub(crate) struct WideningProducts;

impl ByteDot<int32x4_t> for WideningProducts {
    const SIGNED_BYTES: bool = true;
    type Unit = NoUnit;

    unsafe_methods! {
        fn dot4_accumulate(bits: u32, sum: int32x4_t, codes: int32x4_t, x: int32x4_t) -> int32x4_t = {
            let (codes, x) = (signed(bits, codes), vreinterpretq_s8_s32(x));
            let low = vmull_s8(vget_low_s8(codes), vget_low_s8(x));
            // The sum of two products of 128 and 127 fits in 16 bits.
            vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(codes, x)))
        };
    }

    /// # Safety: as [`ByteDot::call`].
    #[target_feature(enable = "neon")]
    #[inline(never)]
    unsafe fn call<S: Simd, K: SimdKernel>(kernel: K) {
        // SAFETY: by the caller.
        unsafe { kernel.run::<S>() }
    }
}
