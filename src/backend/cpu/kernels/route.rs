//! Turns the logits of a router into the weights of experts.

use crate::graph::{ExpertGroups, ExpertScore, RouteSpec};

/// The smallest sum that weights are divided by, as in transformers: all of them may be 0.
const LEAST_SUM: f32 = 1e-20;

/// A router, with scratch memory for one row.
pub(crate) struct Router<'a> {
    spec: &'a RouteSpec,
    /// Added to the probabilities when experts are selected.
    bias: Option<&'a [f32]>,
    /// The numbers that experts are selected by.
    keys: Vec<f32>,
    /// The selected experts, or groups of them, with their keys.
    selected: Vec<(usize, f32)>,
    /// The selected groups.
    groups: Vec<(usize, f32)>,
}

impl<'a> Router<'a> {
    pub fn new(spec: &'a RouteSpec, bias: Option<&'a [f32]>) -> Self {
        Self { spec, bias, keys: vec![], selected: vec![], groups: vec![] }
    }

    /// Writes the weights of the selected experts to their places in `out`, and 0 elsewhere. Of
    /// equal experts the first is selected; a NaN counts as the largest, so that it is not lost.
    pub fn route(&mut self, logits: &[f32], out: &mut [f32]) {
        let RouteSpec { top_k, score, normalized, groups, scale } = *self.spec;
        if score == ExpertScore::Softmax && normalized && groups.is_none() && self.bias.is_none() {
            // Probabilities are in the order of the logits, and those of other experts cancel.
            select(logits, top_k, &mut self.selected);
            let largest = self.selected[0].1;
            self.selected.iter_mut().for_each(|(_, logit)| *logit = (*logit - largest).exp());
        } else {
            probabilities(score, logits, out);
            self.keys.clear();
            self.keys.extend_from_slice(out);
            let keys = self.keys.iter_mut().zip(self.bias.into_iter().flatten());
            keys.for_each(|(key, bias)| *key += bias);
            if let Some(groups) = groups {
                exclude(groups, &mut self.keys, &mut self.groups);
            }
            select(&self.keys, top_k, &mut self.selected);
            self.selected.iter_mut().for_each(|(expert, key)| *key = out[*expert]);
        }
        let sum: f32 = self.selected.iter().map(|(_, weight)| weight).sum();
        let divisor = if normalized { sum.max(LEAST_SUM) } else { 1.0 };
        let divisor = if sum.is_nan() { sum } else { divisor };
        out.fill(0.0);
        self.selected.iter().for_each(|(expert, weight)| out[*expert] = weight / divisor * scale);
    }
}

/// Writes the `top_k` largest of `keys` to `selected`, from the largest on.
fn select(keys: &[f32], top_k: usize, selected: &mut Vec<(usize, f32)>) {
    selected.clear();
    for (number, key) in keys.iter().enumerate() {
        let place = selected.iter().position(|(_, other)| other < key || key.is_nan()).unwrap_or(selected.len());
        if place < top_k {
            selected.truncate(top_k - 1);
            selected.insert(place, (number, *key));
        }
    }
}

fn probabilities(score: ExpertScore, logits: &[f32], out: &mut [f32]) {
    let pairs = out.iter_mut().zip(logits);
    match score {
        ExpertScore::Sigmoid => pairs.for_each(|(out, logit)| *out = 1.0 / (1.0 + (-logit).exp())),
        ExpertScore::Softmax => {
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            pairs.for_each(|(out, logit)| *out = (logit - largest).exp());
            let sum: f32 = out.iter().sum();
            out.iter_mut().for_each(|out| *out /= sum);
        }
    }
}

/// Makes the keys of experts in groups that are not selected the smallest of all.
fn exclude(groups: ExpertGroups, keys: &mut [f32], selected: &mut Vec<(usize, f32)>) {
    let size = keys.len() / groups.count;
    let mut best = Vec::with_capacity(2);
    let score = |group: &[f32]| {
        select(group, 2, &mut best);
        best.iter().map(|(_, key)| key).sum::<f32>()
    };
    let scores: Vec<f32> = keys.chunks(size).map(score).collect();
    select(&scores, groups.top_k, selected);
    for (number, group) in keys.chunks_mut(size).enumerate() {
        if selected.iter().all(|(other, _)| *other != number) {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn router_weighs_the_largest_logits_and_the_first_of_equal_ones() {
        let check = |logits: &[f32], top_k: usize, expected: &[f32]| {
            let mut out = vec![9.0; logits.len()];
            Router::new(&top_k.into(), None).route(logits, &mut out);
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
