//! Rotates queries and keys by their positions (RoPE).
//!
//! Cosines and sines depend on the position and the frequencies alone, so a step computes them once
//! for all layers.

use crate::graph::{RopeAxes, RopeSpec, RopeStyle};

/// Writes the cosines, then the sines, of `position * frequency` for one token with these
/// positions.
///
/// The product is computed in f64: at large positions f32 would lose the angle.
pub(crate) fn angles(positions: [u32; 3], axes: RopeAxes, frequencies: &[f32], out: &mut [f32]) {
    let (cosines, sines) = out.split_at_mut(frequencies.len());
    for (pair, ((frequency, cosine), sine)) in frequencies.iter().zip(cosines).zip(sines).enumerate() {
        let (s, c) = (f64::from(positions[axes.axis(pair)]) * f64::from(*frequency)).sin_cos();
        (*cosine, *sine) = (c as f32, s as f32);
    }
}

/// Rotates every head of the row `x` into the row `out`, which may be `x`.
///
/// # Safety
/// `x` is readable and `out` is writable for `width` elements, a multiple of `spec.head_dim`; no
/// other thread uses `out`; and `angles.len()` is even and at most `spec.head_dim`.
pub(crate) unsafe fn rotate(spec: RopeSpec, x: *const f32, angles: &[f32], out: *mut f32, width: usize) {
    let pairs = angles.len() / 2;
    let (cosines, sines) = angles.split_at(pairs);
    for head in (0..width).step_by(spec.head_dim) {
        for i in 0..pairs {
            let (a, b) = match spec.style {
                RopeStyle::Adjacent => (head + 2 * i, head + 2 * i + 1),
                RopeStyle::Halves => (head + i, head + i + pairs),
                RopeStyle::Quarters => {
                    let half = pairs / 2;
                    let first = head + i / half * pairs + i % half;
                    (first, first + half)
                }
            };
            // SAFETY: 2 * pairs is at most head_dim, so both elements lie in this head.
            unsafe {
                let (p, q) = (*x.add(a), *x.add(b));
                *out.add(a) = p * cosines[i] - q * sines[i];
                *out.add(b) = p * sines[i] + q * cosines[i];
            }
        }
        // SAFETY: these elements are the rest of the head, which is not rotated.
        unsafe { out.add(head + 2 * pairs).copy_from(x.add(head + 2 * pairs), spec.head_dim - 2 * pairs) };
    }
}
