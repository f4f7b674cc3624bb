//! Implements [`Simd`] in plain Rust for every machine: loops over eight lanes, which the compiler
//! vectorizes where it can.

use std::array::from_fn;

use half::{bf16, f16};

use super::{NoUnit, Simd, unsafe_methods};

const WIDTH: usize = 8;

type I = [u32; WIDTH];
type F = [f32; WIDTH];

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Converts f16 to f32, without branches that would prevent vectorization.
fn widen_f16(x: u16) -> f32 {
    let bits = u32::from(x & 0x7fff) << 13;
    // The exponent bias is 15 in f16 and 127 in f32. The largest exponent means infinity or NaN in
    // both.
    let magnitude = (f32::from_bits(bits) * f32::from_bits((127 + 127 - 15) << 23)).to_bits();
    let special = if bits >= 0x7c00 << 13 { 0xff << 23 } else { 0 };
    f32::from_bits(u32::from(x & 0x8000) << 16 | magnitude | special)
}

fn bytes(words: I) -> [[u8; 4]; WIDTH] {
    words.map(u32::to_le_bytes)
}

impl Simd for Portable {
    const WIDTH: usize = WIDTH;
    const SIGNED_BYTES: bool = false;
    type I = I;
    type F = F;
    type Unit = NoUnit;

    unsafe_methods! {
        fn splat_i(x: i32) -> I = [x as u32; WIDTH];
        fn load_i(from: *const u8) -> I = from.cast::<I>().read_unaligned().map(u32::from_le);
        fn load_shorts(from: *const u8) -> I =
            from.cast::<[u16; WIDTH]>().read_unaligned().map(|x| u32::from(u16::from_le(x)));
        fn load_bytes(from: *const u8) -> I = from.cast::<[u8; WIDTH]>().read_unaligned().map(u32::from);
        fn and(a: I, b: I) -> I = from_fn(|i| a[i] & b[i]);
        fn or(a: I, b: I) -> I = from_fn(|i| a[i] | b[i]);
        fn xor(a: I, b: I) -> I = from_fn(|i| a[i] ^ b[i]);
        fn add_i(a: I, b: I) -> I = from_fn(|i| a[i].wrapping_add(b[i]));
        fn shl(a: I, n: u32) -> I = a.map(|x| x << n);
        fn shr(a: I, n: u32) -> I = a.map(|x| x >> n);
        fn sar(a: I, n: u32) -> I = a.map(|x| (x as i32 >> n) as u32);
        fn lookup(table: &[u8; 16], index: I) -> I =
            bytes(index).map(|word| u32::from_le_bytes(word.map(|i| table[usize::from(i & 15)])));
        fn to_f(a: I) -> F = a.map(|x| x as i32 as f32);
        fn as_f(a: I) -> F = a.map(f32::from_bits);
        fn store_i(to: *mut u8, a: I) = to.cast::<I>().write_unaligned(a);
        fn store_bytes(to: *mut i8, a: I) = to.cast::<[i8; WIDTH]>().write_unaligned(a.map(|x| x as i8));
        fn sum_i(a: I) -> i32 = a.iter().fold(0, |sum, x| sum.wrapping_add(*x as i32));

        fn splat(x: f32) -> F = [x; WIDTH];
        fn load(from: *const f32) -> F = from.cast::<F>().read_unaligned();
        fn load_f16(from: *const u16) -> F = from.cast::<[u16; WIDTH]>().read_unaligned().map(widen_f16);
        fn load_bf16(from: *const u16) -> F =
            from.cast::<[u16; WIDTH]>().read_unaligned().map(|x| bf16::from_bits(x).to_f32());
        fn load_i8(from: *const i8) -> F = from.cast::<[i8; WIDTH]>().read_unaligned().map(f32::from);
        fn store(to: *mut f32, a: F) = to.cast::<F>().write_unaligned(a);
        fn store_f16(to: *mut u16, a: F) =
            to.cast::<[u16; WIDTH]>().write_unaligned(a.map(|x| f16::from_f32(x).to_bits()));
        fn add(a: F, b: F) -> F = from_fn(|i| a[i] + b[i]);
        fn sub(a: F, b: F) -> F = from_fn(|i| a[i] - b[i]);
        fn mul(a: F, b: F) -> F = from_fn(|i| a[i] * b[i]);
        fn div(a: F, b: F) -> F = from_fn(|i| a[i] / b[i]);
        fn max(a: F, b: F) -> F = from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] });
        fn min(a: F, b: F) -> F = from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] });
        fn fma(a: F, b: F, c: F) -> F = from_fn(|i| a[i] * b[i] + c[i]);
        fn fnma(a: F, b: F, c: F) -> F = from_fn(|i| c[i] - a[i] * b[i]);
        fn abs(a: F) -> F = a.map(f32::abs);
        fn to_i(a: F) -> I = a.map(|x| x.round_ties_even() as i32 as u32);
        fn sum(a: F) -> f32 = a.iter().sum();
        fn max_lane(a: F) -> f32 = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);

        fn dot4_accumulate(_bits: u32, sum: I, codes: I, x: I) -> I = {
            let (codes, x) = (bytes(codes), bytes(x));
            from_fn(|i| {
                let products = (0..4).map(|j| i32::from(codes[i][j]) * i32::from(x[i][j] as i8));
                (sum[i] as i32 + products.sum::<i32>()) as u32
            })
        };
        fn finish_dot(_bits: u32, sum: I) -> I = sum;
        fn prefetch(_from: *const u8) = ();
        fn prefetch_far(_from: *const u8) = ();
    }

    #[inline(always)]
    fn dot_words(_bits: u32) -> usize {
        8
    }
}
