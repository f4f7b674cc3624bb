//! Rotary position embedding.
//!
//! Sines and cosines depend on the position and the frequencies alone, so a step works them out once for all layers.

use crate::graph::{RopeSpec, RopeStyle};

/// The cosines, then the sines, of one token: `position * frequency`, worked out in double precision because positions
/// are large and single precision would lose the angle.
pub(crate) fn angles(position: usize, frequencies: &[f32], out: &mut [f32]) {
    let (cosines, sines) = out.split_at_mut(frequencies.len());
    for ((frequency, cosine), sine) in frequencies.iter().zip(cosines).zip(sines) {
        let (s, c) = (position as f64 * f64::from(*frequency)).sin_cos();
        (*cosine, *sine) = (c as f32, s as f32);
    }
}

/// Rotates every head of a row from `x` to `out`, which may be the same.
///
/// # Safety
/// Both have `width` elements, which are whole heads.
pub(crate) unsafe fn rotate(spec: RopeSpec, x: *const f32, angles: &[f32], out: *mut f32, width: usize) {
    let pairs = angles.len() / 2;
    let (cosines, sines) = angles.split_at(pairs);
    for head in (0..width).step_by(spec.head_dim) {
        for i in 0..pairs {
            let (a, b) = match spec.style {
                RopeStyle::Adjacent => (head + 2 * i, head + 2 * i + 1),
                RopeStyle::Halves => (head + i, head + i + pairs),
            };
            // SAFETY: 2 * pairs is at most a head, so both lie in this one.
            unsafe {
                let (p, q) = (*x.add(a), *x.add(b));
                *out.add(a) = p * cosines[i] - q * sines[i];
                *out.add(b) = p * sines[i] + q * cosines[i];
            }
        }
        // SAFETY: the rest of the head, which is not rotated.
        unsafe { out.add(head + 2 * pairs).copy_from(x.add(head + 2 * pairs), spec.head_dim - 2 * pairs) };
    }
}
