//! Functions of vectors of floats, and of rows of them.

use crate::simd::Simd;

/// The most lanes of any instruction set: room for the rest of a row.
const MAX_WIDTH: usize = 16;

/// `e^x`, within 2e-7 of it relatively from -87.3 to 88.3; outside as at these ends, so that it is never 0 nor infinite.
///
/// # Safety
/// The machine has `S`, as for all functions here.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: by the caller.
    unsafe {
        // x = n ln 2 + r: 2^n is put together from its bits, e^r is a polynomial (Cephes' expf).
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

/// An operation on two rows, element by element.
pub(crate) trait Binary {
    unsafe fn apply<S: Simd>(a: S::F, b: S::F) -> S::F;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, |$a:ident, $b:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Binary for $name {
            #[inline(always)]
            unsafe fn apply<S: Simd>($a: S::F, $b: S::F) -> S::F {
                // SAFETY: by the caller.
                unsafe { $body }
            }
        }
    )*};
}

binary! {
    /// `a + b`
    Add, |a, b| S::add(a, b);
    /// `a * b`
    Mul, |a, b| S::mul(a, b);
    /// `a / b`
    Div, |a, b| S::div(a, b);
    /// `silu(a) * b`
    SiluMul, |a, b| {
        // Below this, `exp` grows no more, and the quotient would with `a`. A NaN stays one.
        let a = S::max(S::splat(-88.3), a);
        let negated = S::sub(S::splat(0.0), a);
        S::mul(S::div(a, S::add(S::splat(1.0), exp::<S>(negated))), b)
    };
    /// `sigmoid(a) * b`
    SigmoidMul, |a, b| {
        // A NaN stays one, as above.
        let negated = S::sub(S::splat(0.0), S::max(S::splat(-88.3), a));
        S::div(b, S::add(S::splat(1.0), exp::<S>(negated)))
    };
    /// `gelu(a) * b`
    GeluMul, |a, b| {
        // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)). Below this the result is nothing, but `exp` grows no more. A NaN stays one.
        let a = S::max(S::splat(-10.0), a);
        let slope = S::fma(S::mul(a, a), S::splat(0.071_354_82), S::splat(1.595_769));
        let negated = S::mul(S::sub(S::splat(0.0), a), slope);
        S::mul(S::div(a, S::add(S::splat(1.0), exp::<S>(negated))), b)
    };
    /// `b tanh(a / b)`
    SoftCap, |a, b| {
        // tanh(u) = 1 - 2 / (exp(2u) + 1)
        let doubled = S::add(b, b);
        let growth = exp::<S>(S::div(S::add(a, a), b));
        S::sub(b, S::div(doubled, S::add(growth, S::splat(1.0))))
    };
}

/// `out[i] = f(a[i], b[i])` for `len` elements; `out` may be `a` or `b`.
///
/// # Safety
/// All three have `len` elements.
#[inline(always)]
pub(crate) unsafe fn binary<S: Simd, F: Binary>(a: *const f32, b: *const f32, out: *mut f32, len: usize) {
    let whole = len / S::WIDTH * S::WIDTH;
    // SAFETY: by the caller; the rest goes through buffers as long as a vector.
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

/// `out[i] = f(x[i], b)` for `len` elements; `out` may be `x`.
///
/// # Safety
/// Both have `len` elements.
#[inline(always)]
pub(crate) unsafe fn with_one<S: Simd, F: Binary>(x: *const f32, b: f32, out: *mut f32, len: usize) {
    let same = [b; MAX_WIDTH];
    // SAFETY: by the caller.
    unsafe {
        for i in (0..len).step_by(S::WIDTH) {
            binary::<S, F>(x.add(i), same.as_ptr(), out.add(i), S::WIDTH.min(len - i));
        }
    }
}

/// `out = x / sqrt(mean(x^2) + eps) * w` over one group of `len` elements; `out` may be `x`.
///
/// # Safety
/// All three have `len` elements.
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

#[cfg(test)]
mod tests {
    use super::{MAX_WIDTH, exp};
    use crate::{
        backend::cpu::kernels::tests::{Check, on_each_set},
        simd::Simd,
    };

    struct Exp;

    impl Check for Exp {
        #[inline(always)]
        unsafe fn run<S: Simd>(&self, set: &str) {
            let of = |x: f32| {
                let mut lanes = [0.0; MAX_WIDTH];
                // SAFETY: by the caller; the lanes are as many as any instruction set has.
                unsafe { S::store(lanes.as_mut_ptr(), exp::<S>(S::splat(x))) };
                lanes[0]
            };
            for i in -87_300..=88_300 {
                let x = i as f32 / 1000.0;
                let error = f64::from(of(x)) / f64::from(x).exp() - 1.0;
                assert!(error.abs() < 2e-7, "{set}: exp({x}) is off by {error:e}");
            }
            for x in [-87.4, -1e9, f32::MIN, f32::NEG_INFINITY] {
                assert!(of(x) > 0.0 && of(x) < 1.3e-38, "{set}: exp({x}) is {}", of(x));
            }
            for x in [88.4, 1e9, f32::MAX, f32::INFINITY] {
                assert!(of(x) > 2.2e38 && of(x).is_finite(), "{set}: exp({x}) is {}", of(x));
            }
        }
    }

    #[test]
    fn exp_is_near() {
        on_each_set(&Exp);
    }
}
