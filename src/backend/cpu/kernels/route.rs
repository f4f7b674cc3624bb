//! The router of a layer of experts.

/// The softmax over the `used` largest of `logits`, in their places; 0 elsewhere. `taken` is room to work in.
pub(crate) fn route(logits: &[f32], used: usize, taken: &mut Vec<(usize, f32)>, out: &mut [f32]) {
    taken.clear();
    for (index, logit) in logits.iter().enumerate() {
        // One that is not a number comes before all others, so that it is seen.
        let place = taken.iter().position(|(_, other)| other < logit || logit.is_nan()).unwrap_or(taken.len());
        if place < used {
            taken.truncate(used - 1);
            taken.insert(place, (index, *logit));
        }
    }
    let largest = taken[0].1;
    taken.iter_mut().for_each(|(_, logit)| *logit = (*logit - largest).exp());
    let sum: f32 = taken.iter().map(|(_, power)| power).sum();
    out.fill(0.0);
    taken.iter().for_each(|(index, power)| out[*index] = power / sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_taken_and_of_equal_ones_the_first() {
        let check = |logits: &[f32], used, expected: &[f32]| {
            let mut out = vec![9.0; logits.len()];
            route(logits, used, &mut vec![], &mut out);
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6 || a.is_nan() && b.is_nan();
            assert!(out.iter().zip(expected).all(near), "{logits:?}: {out:?}");
        };
        let third = 3f32.ln();
        check(&[0.0, third, -5.0, 0.0], 2, &[0.25, 0.75, 0.0, 0.0]);
        check(&[1.0, 2.0, 2.0, 2.0], 1, &[0.0, 1.0, 0.0, 0.0]);
        check(&[7.0], 1, &[1.0]);
        check(&[100.0, 100.0, -100.0], 3, &[0.5, 0.5, 0.0]);
        check(&[0.0, f32::NAN, 1.0], 1, &[0.0, f32::NAN, 0.0]);
    }
}
