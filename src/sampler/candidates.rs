//! Selects the tokens that the truncations keep, best first, and draws one of them.
//!
//! A vocabulary has 150 thousand tokens, and the truncations keep tens of them. Therefore the
//! vocabulary is not sorted: one pass keeps the `k` best tokens, and top-p asks for more of them
//! until their probability suffices.

use std::cmp::Ordering;

use crate::error::{Error, Result};

/// A token and its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub logit: f32,
    pub id: u32,
}

/// Orders larger logits first, and equal ones by id.
pub(super) fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Returns the token with the largest logit, the lowest id of equal ones, in one pass.
///
/// # Errors
/// [`Error::Argument`] if a logit is NaN or positive infinity, or if all are negative infinity.
pub(crate) fn largest(logits: &[f32]) -> Result<Candidate> {
    const CHUNK: usize = 512;
    let (mut best, mut start) = (f32::NEG_INFINITY, 0);
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        // NaN fails the comparisons. Without an early exit, the compiler vectorizes the loop.
        let (mut valid, mut maximum) = (true, f32::NEG_INFINITY);
        for &logit in chunk {
            valid &= logit < f32::INFINITY;
            maximum = if logit > maximum { logit } else { maximum };
        }
        if !valid {
            return Err(damaged());
        }
        if maximum > best {
            (best, start) = (maximum, index * CHUNK);
        }
    }
    match logits[start..].iter().position(|&logit| logit == best) {
        Some(offset) if best > f32::NEG_INFINITY => Ok(Candidate { logit: best, id: (start + offset) as u32 }),
        _ => Err(none_left()),
    }
}

fn damaged() -> Error {
    Error::argument("logits", "contain NaN or infinity: the model file may be damaged")
}

fn none_left() -> Error {
    Error::argument(
        "logits",
        "are all negative infinity, so no token can be chosen: allow one in `logit_bias`, the grammar or the processors",
    )
}

/// Draws an index from `softmax(logits / temperature)`; `uniform` is a random number in [0, 1), and
/// `largest` the largest logit.
pub(super) fn draw(logits: impl Iterator<Item = f32> + Clone, largest: f32, temperature: f32, uniform: f64) -> usize {
    let weight = |logit: f32| (f64::from(logit - largest) / f64::from(temperature)).exp();
    let total: f64 = logits.clone().map(weight).sum();
    let mut remaining = uniform * total;
    let mut last = 0;
    for (index, logit) in logits.enumerate() {
        let weight = weight(logit);
        if weight > 0.0 {
            last = index;
            remaining -= weight;
            if remaining < 0.0 {
                break;
            }
        }
    }
    last
}

/// Returns the natural logarithm of the sum of the candidates' exponentials. The first candidate is
/// the best.
pub(super) fn log_total(candidates: &[Candidate]) -> f64 {
    let maximum = f64::from(candidates[0].logit);
    candidates.iter().map(|c| (f64::from(c.logit) - maximum).exp()).sum::<f64>().ln() + maximum
}

/// A buffer for the selection, reused from token to token.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    best: Vec<Candidate>,
}

/// The options that truncate the candidates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truncation {
    /// 0 keeps all tokens.
    pub top_k: usize,
    pub typical_p: f32,
    pub top_p: f32,
    pub min_p: f32,
}

impl Candidates {
    /// Returns the tokens that the truncations keep, at least one, best first. `best` has the
    /// largest logit.
    pub(super) fn select(&mut self, logits: &[f32], best: Candidate, truncation: Truncation) -> &[Candidate] {
        let Truncation { top_k, typical_p, top_p, .. } = truncation;
        let weight = |logit: f32| f64::from(logit - best.logit).exp();
        let limit = if top_k == 0 { logits.len() } else { top_k.min(logits.len()) };
        if typical_p < 1.0 {
            self.take_best(logits, limit);
            return self.keep(truncation);
        }
        // Top-p needs the total weight; with top-k it is the total of the `k` best tokens.
        let whole = (top_k == 0 && top_p < 1.0).then(|| logits.iter().map(|&l| weight(l)).sum::<f64>());
        let mut count = if top_k == 0 { limit.min(256) } else { limit };
        let kept = loop {
            self.take_best(logits, count);
            let (kept, has_end) = self.truncated(whole, top_p, truncation.min_p);
            if count == limit || has_end {
                break kept;
            }
            count = limit.min(count * 8);
        };
        &self.best[..kept]
    }

    /// Returns the tokens of `best`, which are the result of top-k in descending order, that the
    /// other truncations keep.
    ///
    /// # Errors
    /// As [`largest`].
    pub(super) fn select_of_best(
        &mut self,
        best: impl Iterator<Item = Candidate>,
        truncation: Truncation,
    ) -> Result<&[Candidate]> {
        self.best.clear();
        self.best.extend(best);
        match self.best.first() {
            Some(first) if first.logit.is_nan() || first.logit == f32::INFINITY => Err(damaged()),
            Some(first) if first.logit > f32::NEG_INFINITY => Ok(self.keep(truncation)),
            _ => Err(none_left()),
        }
    }

    /// Returns the `k` best tokens, sorted.
    pub(super) fn best_of(&mut self, logits: &[f32], k: usize) -> &mut [Candidate] {
        self.take_best(logits, k);
        &mut self.best
    }

    fn keep(&mut self, truncation: Truncation) -> &[Candidate] {
        if truncation.typical_p < 1.0 {
            self.keep_typical(f64::from(truncation.typical_p));
        }
        let (kept, _) = self.truncated(None, truncation.top_p, truncation.min_p);
        &self.best[..kept]
    }

    /// Keeps the tokens with a surprise nearest to the entropy, until their probability is at least
    /// `p`; of equally near tokens, the more probable.
    fn keep_typical(&mut self, p: f64) {
        let total = log_total(&self.best);
        let log_p = |c: &Candidate| f64::from(c.logit) - total;
        let entropy: f64 =
            self.best.iter().filter(|c| c.logit > f32::NEG_INFINITY).map(|c| -log_p(c) * log_p(c).exp()).sum();
        let distance = |c: &Candidate| (-log_p(c) - entropy).abs();
        self.best.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        let mut sum = 0.0;
        let reaches = |c: &Candidate| {
            sum += log_p(c).exp();
            sum >= p
        };
        let kept = self.best.iter().position(reaches).map_or(self.best.len(), |index| index + 1);
        self.best.truncate(kept);
        self.best.sort_unstable_by(best_first);
    }

    /// Returns the number of best tokens to keep, at least one, and whether the result is final
    /// even if more tokens were considered. `whole` is the total weight of all logits; without it,
    /// probabilities are relative to the best tokens.
    fn truncated(&self, whole: Option<f64>, top_p: f32, min_p: f32) -> (usize, bool) {
        let weight = |logit: f32| f64::from(logit - self.best[0].logit).exp();
        let total = whole.unwrap_or_else(|| self.best.iter().map(|c| weight(c.logit)).sum());
        let nucleus = self.nucleus(top_p, total, weight);
        let kept = nucleus.unwrap_or(self.best.len());
        let likely = self.best[..kept].partition_point(|c| weight(c.logit) >= f64::from(min_p));
        (likely.max(1), nucleus.is_some() || likely < kept)
    }

    /// Returns the number of best tokens that reach `top_p` of the total weight; `None` if all of
    /// them together do not, or if top-p is off.
    fn nucleus(&self, top_p: f32, total: f64, weight: impl Fn(f32) -> f64) -> Option<usize> {
        let required = f64::from(top_p) * total;
        let mut sum = 0.0;
        let reaches = |c: &Candidate| {
            sum += weight(c.logit);
            sum >= required
        };
        if top_p < 1.0 { self.best.iter().position(reaches).map(|index| index + 1) } else { None }
    }

    /// Sets `self.best` to the `k` best tokens, sorted.
    fn take_best(&mut self, logits: &[f32], k: usize) {
        let best = &mut self.best;
        best.clear();
        let capacity = 2 * k + 64;
        best.reserve(capacity.min(logits.len()));
        let mut threshold = f32::NEG_INFINITY;
        for (id, &logit) in logits.iter().enumerate() {
            // Of equal logits, the earlier one with the lower id stays.
            if logit > threshold {
                best.push(Candidate { logit, id: id as u32 });
                if best.len() == capacity {
                    best.select_nth_unstable_by(k - 1, best_first);
                    best.truncate(k);
                    threshold = best[k - 1].logit;
                }
            }
        }
        if best.len() > k {
            best.select_nth_unstable_by(k - 1, best_first);
            best.truncate(k);
        }
        best.sort_unstable_by(best_first);
    }
}
