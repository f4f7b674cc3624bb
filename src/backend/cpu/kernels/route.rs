//! Turns the logits of a router into the weights of experts.

/// Writes the softmax over the `top_k` largest of `logits` to their places in `out`, and 0
/// elsewhere. Of equal logits the first is chosen; a NaN counts as the largest, so that it is not
/// lost. `top_k` is from 1 to the number of logits; `chosen` is scratch.
pub(crate) fn route(logits: &[f32], top_k: usize, chosen: &mut Vec<(usize, f32)>, out: &mut [f32]) {
    chosen.clear();
    for (expert, logit) in logits.iter().enumerate() {
        let place = chosen.iter().position(|(_, other)| other < logit || logit.is_nan()).unwrap_or(chosen.len());
        if place < top_k {
            chosen.truncate(top_k - 1);
            chosen.insert(place, (expert, *logit));
        }
    }
    let largest = chosen[0].1;
    chosen.iter_mut().for_each(|(_, logit)| *logit = (*logit - largest).exp());
    let sum: f32 = chosen.iter().map(|(_, power)| power).sum();
    out.fill(0.0);
    chosen.iter().for_each(|(expert, power)| out[*expert] = power / sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn router_weighs_the_largest_logits_and_the_first_of_equal_ones() {
        let check = |logits: &[f32], top_k, expected: &[f32]| {
            let mut out = vec![9.0; logits.len()];
            route(logits, top_k, &mut vec![], &mut out);
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6 || a.is_nan() && b.is_nan();
            assert!(out.iter().zip(expected).all(near), "{logits:?}: {out:?}");
        };
        let ln_3 = 3f32.ln();
        check(&[0.0, ln_3, -5.0, 0.0], 2, &[0.25, 0.75, 0.0, 0.0]);
        check(&[1.0, 2.0, 2.0, 2.0], 1, &[0.0, 1.0, 0.0, 0.0]);
        check(&[7.0], 1, &[1.0]);
        check(&[100.0, 100.0, -100.0], 3, &[0.5, 0.5, 0.0]);
        check(&[0.0, f32::NAN, 1.0], 1, &[0.0, f32::NAN, 0.0]);
    }
}
