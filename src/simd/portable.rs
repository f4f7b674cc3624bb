//! Implements [`Simd`] in plain Rust for every machine: the same operation for each of eight lanes,
//! which the compiler vectorizes where it can.

use std::array::from_fn;

use half::{bf16, f16};

use super::{NoUnit, Simd, SimdKernel, unsafe_methods};

const WIDTH: usize = 8;

type I = [u32; WIDTH];
type F = [f32; WIDTH];

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Returns an array of the values of an expression for lanes 0 to 7.
///
/// [`from_fn`] would return the same, but kernels would take much longer to compile, and the byte
/// dot product would be half as fast.
macro_rules! lanes {
    ($lane:ident => $value:expr) => {
        lanes!($lane => $value; 0 1 2 3 4 5 6 7)
    };
    ($lane:ident => $value:expr; $($number:literal)*) => {
        [$({
            let $lane = $number;
            $value
        }),*]
    };
}

/// Converts f16 to f32, without branches that would prevent vectorization.
#[inline(always)]
fn widen_f16(x: u16) -> f32 {
    let bits = u32::from(x & 0x7fff) << 13;
    // The exponent bias is 15 in f16 and 127 in f32. The largest exponent means infinity or NaN in
    // both.
    let magnitude = (f32::from_bits(bits) * f32::from_bits((127 + 127 - 15) << 23)).to_bits();
    let special = if bits >= 0x7c00 << 13 { 0xff << 23 } else { 0 };
    f32::from_bits(u32::from(x & 0x8000) << 16 | magnitude | special)
}

/// Adds the dot product of four unsigned bytes and four signed bytes to `sum`.
#[inline(always)]
fn dot4(sum: u32, codes: u32, x: u32) -> u32 {
    let ([c0, c1, c2, c3], [x0, x1, x2, x3]) = (codes.to_le_bytes(), x.to_le_bytes());
    let product = |code: u8, x: u8| i32::from(code) * i32::from(x as i8);
    (sum as i32 + (product(c0, x0) + product(c1, x1) + product(c2, x2) + product(c3, x3))) as u32
}

impl Simd for Portable {
    const WIDTH: usize = WIDTH;
    const SIGNED_BYTES: bool = false;
    const DECODES_IN_PLACE: bool = false;
    type I = I;
    type F = F;
    type Unit = NoUnit;

    unsafe_methods! {
        fn splat_i(x: i32) -> I = [x as u32; WIDTH];
        fn load_i(from: *const u8) -> I = {
            let x = from.cast::<I>().read_unaligned();
            lanes!(i => u32::from_le(x[i]))
        };
        fn load_shorts(from: *const u8) -> I = {
            let x = from.cast::<[u16; WIDTH]>().read_unaligned();
            lanes!(i => u32::from(u16::from_le(x[i])))
        };
        fn load_bytes(from: *const u8) -> I = {
            let x = from.cast::<[u8; WIDTH]>().read_unaligned();
            lanes!(i => u32::from(x[i]))
        };
        fn and(a: I, b: I) -> I = lanes!(i => a[i] & b[i]);
        fn or(a: I, b: I) -> I = lanes!(i => a[i] | b[i]);
        fn xor(a: I, b: I) -> I = lanes!(i => a[i] ^ b[i]);
        fn add_i(a: I, b: I) -> I = lanes!(i => a[i].wrapping_add(b[i]));
        fn shl(a: I, n: u32) -> I = lanes!(i => a[i] << n);
        fn shr(a: I, n: u32) -> I = lanes!(i => a[i] >> n);
        fn sar(a: I, n: u32) -> I = lanes!(i => (a[i] as i32 >> n) as u32);
        fn lookup(table: &[u8; 16], index: I) -> I = {
            let entry = |index: u32, shift: u32| u32::from(table[(index >> shift & 15) as usize]) << shift;
            lanes!(i => entry(index[i], 0) | entry(index[i], 8) | entry(index[i], 16) | entry(index[i], 24))
        };
        fn mul_shorts(a: I, b: I) -> I = {
            let product = |a: u32, b: u32| (a as u16).wrapping_mul(b as u16);
            lanes!(i => u32::from(product(a[i], b[i])) | u32::from(product(a[i] >> 16, b[i] >> 16)) << 16)
        };
        fn mul_shorts_high(a: I, b: I) -> I =
            lanes!(i => ((a[i] & 0xffff) * (b[i] & 0xffff)) >> 16 | ((a[i] >> 16) * (b[i] >> 16)) & 0xffff_0000);
        fn gather(table: &[u32], index: I) -> I = lanes!(i => *table.get_unchecked(index[i] as usize));
        fn to_f(a: I) -> F = lanes!(i => a[i] as i32 as f32);
        fn as_f(a: I) -> F = lanes!(i => f32::from_bits(a[i]));
        fn store_i(to: *mut u8, a: I) = to.cast::<I>().write_unaligned(a);
        fn store_bytes(to: *mut i8, a: I) = to.cast::<[i8; WIDTH]>().write_unaligned(lanes!(i => a[i] as i8));
        fn sum_i(a: I) -> i32 = a.iter().fold(0, |sum, x| sum.wrapping_add(*x as i32));

        fn splat(x: f32) -> F = [x; WIDTH];
        fn load(from: *const f32) -> F = from.cast::<F>().read_unaligned();
        fn load_f16(from: *const u16) -> F = {
            let x = from.cast::<[u16; WIDTH]>().read_unaligned();
            lanes!(i => widen_f16(x[i]))
        };
        fn load_bf16(from: *const u16) -> F = {
            let x = from.cast::<[u16; WIDTH]>().read_unaligned();
            lanes!(i => bf16::from_bits(x[i]).to_f32())
        };
        fn load_i8(from: *const i8) -> F = {
            let x = from.cast::<[i8; WIDTH]>().read_unaligned();
            lanes!(i => f32::from(x[i]))
        };
        fn store(to: *mut f32, a: F) = to.cast::<F>().write_unaligned(a);
        fn store_f16(to: *mut u16, a: F) =
            to.cast::<[u16; WIDTH]>().write_unaligned(lanes!(i => f16::from_f32(a[i]).to_bits()));
        fn add(a: F, b: F) -> F = lanes!(i => a[i] + b[i]);
        fn sub(a: F, b: F) -> F = lanes!(i => a[i] - b[i]);
        fn mul(a: F, b: F) -> F = lanes!(i => a[i] * b[i]);
        fn div(a: F, b: F) -> F = lanes!(i => a[i] / b[i]);
        fn max(a: F, b: F) -> F = lanes!(i => if a[i] > b[i] { a[i] } else { b[i] });
        fn min(a: F, b: F) -> F = lanes!(i => if a[i] < b[i] { a[i] } else { b[i] });
        fn fma(a: F, b: F, c: F) -> F = lanes!(i => a[i] * b[i] + c[i]);
        fn fnma(a: F, b: F, c: F) -> F = lanes!(i => c[i] - a[i] * b[i]);
        fn abs(a: F) -> F = lanes!(i => a[i].abs());
        fn to_i(a: F) -> I = lanes!(i => a[i].round_ties_even() as i32 as u32);
        fn sum(a: F) -> f32 = a.iter().sum();
        fn max_lane(a: F) -> f32 = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);

        fn dot4_accumulate(_bits: u32, sum: I, codes: I, x: I) -> I = from_fn(|i| dot4(sum[i], codes[i], x[i]));
        fn finish_dot(_bits: u32, sum: I) -> I = sum;
        fn prefetch(_from: *const u8) = ();
        fn prefetch_far(_from: *const u8) = ();
    }

    /// # Safety: as [`Simd::call`].
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
