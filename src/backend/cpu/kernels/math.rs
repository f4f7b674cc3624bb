//! Computes element-wise functions, the exponential and RMS norms of rows of f32.

use crate::simd::Simd;

/// Lanes of the widest instruction set: room for the elements past the last whole vector.
const MAX_WIDTH: usize = 16;

/// Returns `e^x` with a relative error below 2e-7 from -87.3 to 88.3. Outside, `x` is clamped to
/// these ends, so the result is neither 0 nor infinite.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: by the caller.
    unsafe {
        // With x = n ln 2 + r: 2^n from its bits, e^r as a polynomial (Cephes' expf).
        let x = S::min(S::max(x, S::splat(-87.3)), S::splat(88.3));
        let n = S::to_i(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
        let whole = S::to_f(n);
        let r = S::fnma(whole, S::splat(-2.121_944_4e-4), S::fnma(whole, S::splat(0.693_359_4), x));
        let mut p = S::splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
            p = S::fma(p, r, S::splat(c));
        }
        let power = S::as_f(S::shl(S::add_i(n, S::splat_i(127)), 23));
        S::mul(S::fma(S::mul(p, r), r, S::add(r, S::splat(1.0))), power)
    }
}

/// A function of two operands, element by element.
pub(crate) trait Elementwise {
    /// Returns the function of each lane.
    ///
    /// # Safety
    /// The machine has `S`.
    unsafe fn apply<S: Simd>(a: S::F, b: S::F) -> S::F;
}

macro_rules! elementwise {
    ($($(#[$doc:meta])* $name:ident, |$a:ident, $b:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Elementwise for $name {
            /// # Safety: as [`Elementwise::apply`].
            #[inline(always)]
            unsafe fn apply<S: Simd>($a: S::F, $b: S::F) -> S::F {
                // SAFETY: by the caller.
                unsafe { $body }
            }
        }
    )*};
}

elementwise! {
    /// `a + b`
    Add, |a, b| S::add(a, b);
    /// `a * b`
    Mul, |a, b| S::mul(a, b);
    /// `a / b`
    Div, |a, b| S::div(a, b);
    /// `silu(a) * b`
    SiluMul, |a, b| {
        // Below this, `exp` is clamped, and the quotient would grow with `a`. A NaN stays a NaN.
        let a = S::max(S::splat(-88.3), a);
        let negated = S::sub(S::splat(0.0), a);
        S::mul(S::div(a, S::add(S::splat(1.0), exp::<S>(negated))), b)
    };
    /// `sigmoid(a) * b`
    SigmoidMul, |a, b| {
        // A NaN stays a NaN, as above.
        let negated = S::sub(S::splat(0.0), S::max(S::splat(-88.3), a));
        S::div(b, S::add(S::splat(1.0), exp::<S>(negated)))
    };
    /// `gelu(a) * b`
    GeluMul, |a, b| {
        // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)). Below -10 the result rounds to 0, but `exp` is
        // clamped and the quotient would grow. A NaN stays a NaN.
        let a = S::max(S::splat(-10.0), a);
        let slope = S::fma(S::mul(a, a), S::splat(0.071_354_82), S::splat(1.595_769));
        let negated = S::mul(S::sub(S::splat(0.0), a), slope);
        S::mul(S::div(a, S::add(S::splat(1.0), exp::<S>(negated))), b)
    };
    /// `gelu_erf(a) * b`
    GeluErfMul, |a, b| {
        // (1 + erf(u)) / 2 = erfc(-u) / 2, and erfc(u) = exp(-u^2) p(1 / (1 + u / 2)) for u >= 0
        // (Numerical Recipes, 6.2). A NaN stays a NaN.
        let u = S::mul(a, S::splat(std::f32::consts::FRAC_1_SQRT_2));
        let size = S::max(u, S::sub(S::splat(0.0), u));
        let t = S::div(S::splat(1.0), S::fma(size, S::splat(0.5), S::splat(1.0)));
        let mut p = S::splat(0.170_872_77);
        for c in [
            -0.822_152_23, 1.488_515_9, -1.135_204, 0.278_868_07, -0.186_288_06, 0.096_784_18, 0.374_091_96,
            1.000_023_7, -1.265_512_2,
        ] {
            p = S::fma(p, t, S::splat(c));
        }
        let tail = S::mul(t, exp::<S>(S::fnma(size, size, p)));
        // The share of `a` that is not in the tail of its own sign.
        let half_tail = S::mul(S::mul(S::splat(0.5), tail), size);
        let positive = S::max(u, S::splat(0.0));
        S::mul(S::mul(S::sub(positive, half_tail), S::splat(std::f32::consts::SQRT_2)), b)
    };
    /// `quick_gelu(a) * b`
    QuickGeluMul, |a, b| {
        // Below this, `exp` is clamped, and the quotient would grow with `a`. A NaN stays a NaN.
        let a = S::max(S::splat(-51.8), a);
        let negated = S::mul(a, S::splat(-1.702));
        S::mul(S::div(a, S::add(S::splat(1.0), exp::<S>(negated))), b)
    };
    /// `max(a, 0) * b`
    ReluMul, |a, b| S::mul(S::max(S::splat(0.0), a), b);
    /// `max(a, 0)^2 * b`
    SquaredReluMul, |a, b| {
        // A NaN stays a NaN, as above.
        let a = S::max(S::splat(0.0), a);
        S::mul(S::mul(a, a), b)
    };
    /// [`Glu::Clamped`](crate::graph::Glu::Clamped) of `a` and `b`
    ClampedGlu, |a, b| {
        // A NaN stays a NaN, as above. Below -51.8, `exp` is clamped.
        let a = S::max(S::splat(-51.8), S::min(S::splat(7.0), a));
        let b = S::max(S::splat(-7.0), S::min(S::splat(7.0), b));
        let negated = S::mul(a, S::splat(-1.702));
        S::mul(S::div(a, S::add(S::splat(1.0), exp::<S>(negated))), S::add(b, S::splat(1.0)))
    };
    /// `b tanh(a / b)`
    SoftCap, |a, b| {
        // tanh(u) = 1 - 2 / (exp(2u) + 1)
        let doubled = S::add(b, b);
        let growth = exp::<S>(S::div(S::add(a, a), b));
        S::sub(b, S::div(doubled, S::add(growth, S::splat(1.0))))
    };
}

/// Writes `f(a[i], b[i])` to `out[i]` for `len` elements.
///
/// # Safety
/// `a` and `b` are readable and `out` is writable for `len` elements, `out` is `a`, `b` or overlaps
/// neither, no other thread uses `out`, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn elementwise<S: Simd, F: Elementwise>(a: *const f32, b: *const f32, out: *mut f32, len: usize) {
    let whole = len / S::WIDTH * S::WIDTH;
    // SAFETY: by the caller; the elements past the last whole vector go through buffers of one.
    unsafe {
        for i in (0..whole).step_by(S::WIDTH) {
            S::store(out.add(i), F::apply::<S>(S::load(a.add(i)), S::load(b.add(i))));
        }
        if whole < len {
            let mut rest = [[1.0f32; MAX_WIDTH]; 2];
            rest[0].as_mut_ptr().copy_from_nonoverlapping(a.add(whole), len - whole);
            rest[1].as_mut_ptr().copy_from_nonoverlapping(b.add(whole), len - whole);
            let result = F::apply::<S>(S::load(rest[0].as_ptr()), S::load(rest[1].as_ptr()));
            S::store(rest[0].as_mut_ptr(), result);
            out.add(whole).copy_from_nonoverlapping(rest[0].as_ptr(), len - whole);
        }
    }
}

/// Writes `f(x[i], b)` to `out[i]` for `len` elements.
///
/// # Safety
/// As [`elementwise()`], for `x` and `out`.
#[inline(always)]
pub(crate) unsafe fn elementwise_scalar<S: Simd, F: Elementwise>(x: *const f32, b: f32, out: *mut f32, len: usize) {
    let same = [b; MAX_WIDTH];
    // SAFETY: by the caller.
    unsafe {
        for i in (0..len).step_by(S::WIDTH) {
            elementwise::<S, F>(x.add(i), same.as_ptr(), out.add(i), S::WIDTH.min(len - i));
        }
    }
}

/// Writes `x / sqrt(mean(x^2) + eps) * w` over one group of `len` elements to `out`.
///
/// # Safety
/// As [`elementwise()`], for `x`, `w` and `out`; `out` does not overlap `w`.
#[inline(always)]
pub(crate) unsafe fn rms_norm<S: Simd>(x: *const f32, w: *const f32, eps: f32, out: *mut f32, len: usize) {
    let whole = len / S::WIDTH * S::WIDTH;
    // SAFETY: by the caller.
    unsafe {
        let mut squares = S::splat(0.0);
        for i in (0..whole).step_by(S::WIDTH) {
            let x = S::load(x.add(i));
            squares = S::fma(x, x, squares);
        }
        let mut sum = S::sum(squares);
        for i in whole..len {
            sum += *x.add(i) * *x.add(i);
        }
        let factor = 1.0 / (sum / len as f32 + eps).sqrt();
        for i in (0..whole).step_by(S::WIDTH) {
            let scaled = S::mul(S::load(x.add(i)), S::splat(factor));
            S::store(out.add(i), S::mul(scaled, S::load(w.add(i))));
        }
        for i in whole..len {
            *out.add(i) = *x.add(i) * factor * *w.add(i);
        }
    }
}

/// Writes `(x - mean(x)) / sqrt(variance(x) + eps) * w + b` to `out`.
///
/// # Safety
/// As [`elementwise()`], for `x` and `out` of the length of `w` and `b`.
#[inline(always)]
pub(crate) unsafe fn layer_norm<S: Simd>(x: *const f32, w: &[f32], b: &[f32], eps: f32, out: *mut f32) {
    let len = w.len();
    let whole = len / S::WIDTH * S::WIDTH;
    // SAFETY: by the caller.
    unsafe {
        let mut sums = S::splat(0.0);
        for i in (0..whole).step_by(S::WIDTH) {
            sums = S::add(S::load(x.add(i)), sums);
        }
        let rest: f32 = (whole..len).map(|i| *x.add(i)).sum();
        let mean = (S::sum(sums) + rest) / len as f32;
        let mut squares = S::splat(0.0);
        for i in (0..whole).step_by(S::WIDTH) {
            let centered = S::sub(S::load(x.add(i)), S::splat(mean));
            squares = S::fma(centered, centered, squares);
        }
        let rest: f32 = (whole..len).map(|i| (*x.add(i) - mean).powi(2)).sum();
        let factor = 1.0 / ((S::sum(squares) + rest) / len as f32 + eps).sqrt();
        for i in (0..whole).step_by(S::WIDTH) {
            let scaled = S::mul(S::sub(S::load(x.add(i)), S::splat(mean)), S::splat(factor));
            S::store(out.add(i), S::fma(scaled, S::load(w.as_ptr().add(i)), S::load(b.as_ptr().add(i))));
        }
        for i in whole..len {
            *out.add(i) = (*x.add(i) - mean) * factor * w[i] + b[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_WIDTH, exp};
    use crate::{
        backend::cpu::kernels::tests::{Check, on_each_set},
        simd::Simd,
    };

    struct Exp;

    impl Check for Exp {
        /// # Safety: as [`Check::run`].
        #[inline(always)]
        unsafe fn run<S: Simd>(&self, set: &str) {
            let exp_of = |x: f32| {
                let mut lanes = [0.0; MAX_WIDTH];
                // SAFETY: by the caller; there is room for the lanes of any instruction set.
                unsafe { S::store(lanes.as_mut_ptr(), exp::<S>(S::splat(x))) };
                lanes[0]
            };
            for i in -87_300..=88_300 {
                let x = i as f32 / 1000.0;
                let error = f64::from(exp_of(x)) / f64::from(x).exp() - 1.0;
                assert!(error.abs() < 2e-7, "{set}: exp({x}) is off by {error:e}");
            }
            for x in [-87.4, -1e9, f32::MIN, f32::NEG_INFINITY] {
                assert!(exp_of(x) > 0.0 && exp_of(x) < 1.3e-38, "{set}: exp({x}) is {}", exp_of(x));
            }
            for x in [88.4, 1e9, f32::MAX, f32::INFINITY] {
                assert!(exp_of(x) > 2.2e38 && exp_of(x).is_finite(), "{set}: exp({x}) is {}", exp_of(x));
            }
        }
    }

    #[test]
    fn exp_is_within_its_error_and_clamped() {
        on_each_set(&Exp);
    }
}
