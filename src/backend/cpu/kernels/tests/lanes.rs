//! Tests the vector operations lane by lane against scalar Rust.

use half::{bf16, f16};

use super::{Check, Random, on_each_set, to_floats};
use crate::{backend::cpu::kernels::math, quant::ROWS, simd::Simd};

/// Returns the lanes of a vector.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
unsafe fn floats<S: Simd>(vector: S::F) -> Vec<f32> {
    let mut lanes = vec![0.0; S::WIDTH];
    // SAFETY: by the caller; there is room for the lanes.
    unsafe { S::store(lanes.as_mut_ptr(), vector) };
    lanes
}

/// Returns whether both have the same bits or are NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Checks that every f16 and bf16 converts to f32 exactly.
struct Widens;

impl Check for Widens {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let halves: Vec<u16> = (0..=u16::MAX).collect();
        for from in halves.chunks_exact(S::WIDTH) {
            // SAFETY: by the caller; a vector of f16 is read.
            let (half, brain) =
                unsafe { (floats::<S>(S::load_f16(from.as_ptr())), floats::<S>(S::load_bf16(from.as_ptr()))) };
            for (lane, &bits) in from.iter().enumerate() {
                assert!(same(half[lane], f16::from_bits(bits).to_f32_const()), "{set}, f16 {bits:#06x}");
                assert!(same(brain[lane], bf16::from_bits(bits).to_f32_const()), "{set}, bf16 {bits:#06x}");
            }
        }
    }
}

/// Checks that f32 rounds to the nearest f16, and to the even one of two.
struct Narrows;

impl Check for Narrows {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let random = Random::new(5);
        let between =
            (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32_const()).filter(|x| x.is_finite()).flat_map(|x| {
                [x.to_bits(), x.to_bits() | 0x1000, x.to_bits() | 0x0fff, x.to_bits() | 0x1001].map(f32::from_bits)
            });
        let any = (0..1 << 16).map(|_| f32::from_bits(random.next() as u32)).filter(|x| !x.is_nan());
        let from: Vec<f32> = between.chain(any).collect();
        for from in from.chunks_exact(S::WIDTH) {
            let mut to = [0; ROWS];
            // SAFETY: by the caller; a vector is read, and there is room for its f16.
            unsafe { S::store_f16(to.as_mut_ptr(), S::load(from.as_ptr())) };
            for (&x, to) in from.iter().zip(to) {
                assert_eq!(to, f16::from_f32_const(x).to_bits(), "{set}, {x:e}");
            }
        }
    }
}

/// Checks arithmetic on integers, for which all results are exact.
struct Computes;

impl Check for Computes {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let random = Random::new(6);
        for _ in 0..100 {
            let [a, b, c]: [[f32; ROWS]; 3] = [(); 3].map(|()| [(); ROWS].map(|()| f32::from(random.byte()) - 128.0));
            // SAFETY: by the caller; a vector has at most `ROWS` lanes.
            let (lanes, sum, largest) = unsafe {
                let [va, vb, vc] = [&a, &b, &c].map(|x| S::load(x.as_ptr()));
                let lanes = [
                    floats::<S>(S::add(va, vb)),
                    floats::<S>(S::sub(va, vb)),
                    floats::<S>(S::mul(va, vb)),
                    floats::<S>(S::div(va, S::max(S::abs(vb), S::splat(1.0)))),
                    floats::<S>(S::max(va, vb)),
                    floats::<S>(S::min(va, vb)),
                    floats::<S>(S::fma(va, vb, vc)),
                    floats::<S>(S::fnma(va, vb, vc)),
                    floats::<S>(S::abs(va)),
                ];
                (lanes, S::sum(va), S::max_lane(va))
            };
            for i in 0..S::WIDTH {
                let [a, b, c] = [a[i], b[i], c[i]];
                let quotient = a / b.abs().max(1.0);
                let expected = [a + b, a - b, a * b, quotient, a.max(b), a.min(b), a * b + c, c - a * b, a.abs()];
                assert_eq!(lanes.each_ref().map(|got| got[i]), expected, "{set}, of {a}, {b} and {c}");
            }
            let a = &a[..S::WIDTH];
            assert_eq!((sum, largest), (a.iter().sum(), a.iter().copied().fold(f32::MIN, f32::max)), "{set}, {a:?}");
        }
    }
}

/// Checks look-ups in tables, and products of 16-bit halves.
struct LooksUp;

impl Check for LooksUp {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let random = Random::new(7);
        for len in [1, 2, 255, 256, 2048] {
            // Numbers of 24 bits, which f32 has exactly.
            let table: Vec<u32> = (0..len).map(|_| random.next() as u32 >> 8).collect();
            let index: [u32; ROWS] =
                std::array::from_fn(|i| if i % 3 == 0 { len - 1 } else { random.next() as u32 % len });
            // SAFETY: by the caller; a vector has at most `ROWS` lanes, the table has the entries.
            let entries = unsafe { to_floats::<S>(S::gather(&table, S::load_i(index.as_ptr().cast()))) };
            for (lane, entry) in entries.into_iter().enumerate() {
                assert_eq!(entry, table[index[lane] as usize] as f32, "{set}, entry {} of {len}", index[lane]);
            }
        }
        for _ in 0..100 {
            let [a, b]: [[u16; 2 * ROWS]; 2] = [(); 2].map(|()| [(); 2 * ROWS].map(|()| random.next() as u16));
            let mut products = [[0u16; 2 * ROWS]; 2];
            // SAFETY: by the caller; a vector has at most `ROWS` lanes of two halves each.
            unsafe {
                let [a, b] = [a, b].map(|x| S::load_i(x.as_ptr().cast()));
                S::store_i(products[0].as_mut_ptr().cast(), S::mul_shorts(a, b));
                S::store_i(products[1].as_mut_ptr().cast(), S::mul_shorts_high(a, b));
            }
            for i in 0..2 * S::WIDTH {
                let product = u32::from(a[i]) * u32::from(b[i]);
                let got = u32::from(products[0][i]) | (u32::from(products[1][i]) << 16);
                assert_eq!(got, product, "{set}, {} times {}", a[i], b[i]);
            }
        }
    }
}

/// Checks that bytes load and store exactly, and that f32 rounds to the nearest byte.
struct Rounds;

impl Check for Rounds {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let bytes: Vec<i8> = (i8::MIN..=i8::MAX).collect();
        for from in bytes.chunks_exact(S::WIDTH) {
            for off in [-0.499, -0.25, 0.0, 0.25, 0.499] {
                let x: Vec<f32> = from.iter().map(|&byte| f32::from(byte) + off).collect();
                let mut to = [0; ROWS];
                // SAFETY: by the caller; a vector is read, and there is room for its bytes.
                let (widened, whole, sum) = unsafe {
                    let whole = S::to_i(S::load(x.as_ptr()));
                    S::store_bytes(to.as_mut_ptr(), whole);
                    (floats::<S>(S::load_i8(from.as_ptr())), to_floats::<S>(whole), S::sum_i(whole))
                };
                let expected: Vec<f32> = from.iter().map(|&byte| f32::from(byte)).collect();
                assert_eq!((&widened, &whole), (&expected, &expected), "{set}");
                assert_eq!(&to[..S::WIDTH], from, "{set}");
                assert_eq!(sum, from.iter().map(|&byte| i32::from(byte)).sum::<i32>(), "{set}");
            }
        }
    }
}

/// Checks the error of the exponential.
struct Exponential;

impl Check for Exponential {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let x: Vec<f32> = (-87_000..=88_000).map(|i| i as f32 / 1000.0).collect();
        for x in x.chunks_exact(S::WIDTH) {
            // SAFETY: by the caller; a vector is read.
            let got = unsafe { floats::<S>(math::exp::<S>(S::load(x.as_ptr()))) };
            for (&x, got) in x.iter().zip(got) {
                let expected = f64::from(x).exp();
                assert!(
                    (f64::from(got) - expected).abs() <= 2e-7 * expected,
                    "{set}: e^{x} is {expected:e}, not {got:e}"
                );
            }
        }
    }
}

#[test]
fn f16_and_bf16_widen_exactly() {
    on_each_set(&Widens);
}

#[test]
fn f32_rounds_to_the_nearest_f16() {
    on_each_set(&Narrows);
}

#[test]
fn arithmetic_is_exact_on_whole_numbers() {
    on_each_set(&Computes);
}

#[test]
fn tables_and_products_of_halves_are_exact() {
    on_each_set(&LooksUp);
}

#[test]
fn f32_rounds_to_the_nearest_byte() {
    on_each_set(&Rounds);
}

#[test]
fn exp_is_within_its_error_in_every_lane() {
    on_each_set(&Exponential);
}
