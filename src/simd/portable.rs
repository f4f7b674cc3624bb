//! The instruction set that every machine has: plain loops over eight lanes, which the compiler vectorises as it can.

use std::array::from_fn;

use half::{bf16, f16};

use super::{NoUnit, Simd};

const WIDTH: usize = 8;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Half precision to single, without the branches that would keep the compiler from vectorising it.
fn widen_f16(x: u16) -> f32 {
    let bits = u32::from(x & 0x7fff) << 13;
    // Exponents count from 15 there and from 127 here; the largest stands for infinity or no number in both.
    let size = (f32::from_bits(bits) * f32::from_bits((127 + 127 - 15) << 23)).to_bits();
    let special = if bits >= 0x7c00 << 13 { 0xff << 23 } else { 0 };
    f32::from_bits(u32::from(x & 0x8000) << 16 | size | special)
}

fn bytes(words: [u32; WIDTH]) -> [[u8; 4]; WIDTH] {
    words.map(u32::to_le_bytes)
}

// SAFETY (of every `unsafe` block here): pointers are readable or writable as the trait's callers promise.
impl Simd for Portable {
    const WIDTH: usize = WIDTH;
    const SIGNED_BYTES: bool = false;
    type I = [u32; WIDTH];
    type F = [f32; WIDTH];
    type Unit = NoUnit;

    #[inline(always)]
    unsafe fn splat_i(x: i32) -> Self::I {
        [x as u32; WIDTH]
    }
    #[inline(always)]
    unsafe fn load_i(from: *const u8) -> Self::I {
        // SAFETY: as above.
        unsafe { from.cast::<Self::I>().read_unaligned() }.map(u32::from_le)
    }
    #[inline(always)]
    unsafe fn load_shorts(from: *const u8) -> Self::I {
        // SAFETY: as above.
        unsafe { from.cast::<[u16; WIDTH]>().read_unaligned() }.map(|x| u32::from(u16::from_le(x)))
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::I {
        // SAFETY: as above.
        unsafe { from.cast::<[u8; WIDTH]>().read_unaligned() }.map(u32::from)
    }
    #[inline(always)]
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    unsafe fn shl(a: Self::I, n: u32) -> Self::I {
        a.map(|x| x << n)
    }
    #[inline(always)]
    unsafe fn shr(a: Self::I, n: u32) -> Self::I {
        a.map(|x| x >> n)
    }
    #[inline(always)]
    unsafe fn sar(a: Self::I, n: u32) -> Self::I {
        a.map(|x| (x as i32 >> n) as u32)
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: Self::I) -> Self::I {
        bytes(index).map(|word| u32::from_le_bytes(word.map(|i| table[usize::from(i & 15)])))
    }
    #[inline(always)]
    unsafe fn to_f(a: Self::I) -> Self::F {
        a.map(|x| x as i32 as f32)
    }
    #[inline(always)]
    unsafe fn as_f(a: Self::I) -> Self::F {
        a.map(f32::from_bits)
    }
    #[inline(always)]
    unsafe fn store_i(to: *mut u8, a: Self::I) {
        // SAFETY: as above.
        unsafe { to.cast::<Self::I>().write_unaligned(a) }
    }
    #[inline(always)]
    unsafe fn store_bytes(to: *mut i8, a: Self::I) {
        // SAFETY: as above.
        unsafe { to.cast::<[i8; WIDTH]>().write_unaligned(a.map(|x| x as i8)) }
    }
    #[inline(always)]
    unsafe fn sum_i(a: Self::I) -> i32 {
        a.iter().fold(0, |sum, x| sum.wrapping_add(*x as i32))
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        [x; WIDTH]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        // SAFETY: as above.
        unsafe { from.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: as above.
        unsafe { from.cast::<[u16; WIDTH]>().read_unaligned() }.map(widen_f16)
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        // SAFETY: as above.
        unsafe { from.cast::<[u16; WIDTH]>().read_unaligned() }.map(|x| bf16::from_bits(x).to_f32())
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::F {
        // SAFETY: as above.
        unsafe { from.cast::<[i8; WIDTH]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, a: Self::F) {
        // SAFETY: as above.
        unsafe { to.cast::<Self::F>().write_unaligned(a) }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, a: Self::F) {
        // SAFETY: as above.
        unsafe { to.cast::<[u16; WIDTH]>().write_unaligned(a.map(|x| f16::from_f32(x).to_bits())) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| c[i] - a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        a.map(f32::abs)
    }
    #[inline(always)]
    unsafe fn to_i(a: Self::F) -> Self::I {
        a.map(|x| x.round_ties_even() as i32 as u32)
    }
    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        a.iter().sum()
    }
    #[inline(always)]
    unsafe fn max_lane(a: Self::F) -> f32 {
        a.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn span(_bits: u32) -> usize {
        8
    }
    #[inline(always)]
    unsafe fn gather(_bits: u32, sum: Self::I, codes: Self::I, x: Self::I) -> Self::I {
        let (codes, x) = (bytes(codes), bytes(x));
        from_fn(|i| {
            let products = (0..4).map(|j| i32::from(codes[i][j]) * i32::from(x[i][j] as i8));
            (sum[i] as i32 + products.sum::<i32>()) as u32
        })
    }
    #[inline(always)]
    unsafe fn total(_bits: u32, sum: Self::I) -> Self::I {
        sum
    }

    #[inline(always)]
    unsafe fn prefetch(_from: *const u8) {}
    #[inline(always)]
    unsafe fn prefetch_far(_from: *const u8) {}
}
