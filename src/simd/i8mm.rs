//! Adds Armv8.6's int8 matrix multiplication (FEAT_I8MM) to NEON with dot products.
//!
//! One instruction multiplies two rows of eight bytes by two rows of eight bytes and adds four
//! sums. The intrinsics are unstable in Rust, so it is inline assembly.

use std::arch::{aarch64::*, asm};

use super::{
    ByteDot, MatrixUnit, Neon, ROWS, Simd, SimdKernel,
    neon::{Sdot, signed},
    unsafe_methods,
};

/// AArch64 with NEON, dot products and int8 matrix multiplication.
pub(crate) type NeonI8mm = Neon<I8mm>;

/// The matrix unit FEAT_I8MM, and the byte dot products of [`Sdot`].
#[derive(Clone, Copy)]
pub(crate) struct I8mm;

impl ByteDot<int32x4_t> for I8mm {
    const SIGNED_BYTES: bool = Sdot::SIGNED_BYTES;
    type Unit = Self;

    unsafe_methods! {
        fn dot4_accumulate(bits: u32, sum: int32x4_t, codes: int32x4_t, x: int32x4_t) -> int32x4_t =
            Sdot::dot4_accumulate(bits, sum, codes, x);
    }

    /// # Safety: as [`ByteDot::call`].
    #[target_feature(enable = "neon,dotprod,i8mm")]
    #[inline(never)]
    unsafe fn call<S: Simd, K: SimdKernel>(kernel: K) {
        // SAFETY: by the caller.
        unsafe { kernel.run::<S>() }
    }
}

impl MatrixUnit for I8mm {
    const TOKENS: usize = 4;

    /// # Safety: as [`MatrixUnit::begin`].
    #[inline(always)]
    unsafe fn begin(_words: usize) {}

    /// # Safety: as [`MatrixUnit::multiply`].
    #[inline(always)]
    unsafe fn multiply(bits: u32, words: usize, codes: *const u8, x: *const i8, stride: usize, sums: *mut i32) {
        // SAFETY: by the caller, the pointers are valid for these shapes.
        unsafe {
            // `acc[q][r][t]`: sums of rows 4q + 2r and 4q + 2r + 1 with tokens 2t and 2t + 1.
            let mut acc = [[[vdupq_n_s32(0); 2]; 2]; ROWS / 4];
            for word in (0..words).step_by(2) {
                let x = |token: usize| vld1_s8(x.add(token * stride + 4 * word));
                let tokens = [vcombine_s8(x(0), x(1)), vcombine_s8(x(2), x(3))];
                for (q, acc) in acc.iter_mut().enumerate() {
                    let line = |word: usize| vld1q_s32(codes.add(64 * word + 16 * q).cast());
                    let [first, second] = [line(word), line(word + 1)];
                    let rows = [vzip1q_s32(first, second), vzip2q_s32(first, second)];
                    for (acc, rows) in acc.iter_mut().zip(rows) {
                        let rows = signed(bits, rows);
                        for (acc, tokens) in acc.iter_mut().zip(tokens) {
                            *acc = smmla(*acc, tokens, rows);
                        }
                    }
                }
            }
            for (q, [low, high]) in acc.into_iter().enumerate() {
                for pair in 0..2 {
                    // Each has two rows of the first token, then two rows of the second.
                    let [low, high] = [vreinterpretq_s64_s32(low[pair]), vreinterpretq_s64_s32(high[pair])];
                    let to = sums.add(2 * pair * ROWS + 4 * q);
                    vst1q_s32(to, vreinterpretq_s32_s64(vzip1q_s64(low, high)));
                    vst1q_s32(to.add(ROWS), vreinterpretq_s32_s64(vzip2q_s64(low, high)));
                }
            }
        }
    }

    /// # Safety: as [`MatrixUnit::end`].
    #[inline(always)]
    unsafe fn end() {}
}

/// Returns `sum + a * b^T`, where `sum` is `[2, 2]` i32, and `a` and `b` are `[2, 8]` int8.
///
/// # Safety
/// The machine has FEAT_I8MM.
#[inline(always)]
unsafe fn smmla(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: by the caller, the machine has the instruction.
    unsafe {
        asm!(
            "smmla {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
