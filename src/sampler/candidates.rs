//! Logits in, the few tokens that the truncations keep out, best first, and the draw among them.
//!
//! A vocabulary has 150 thousand tokens and a truncation keeps tens of them. So nothing sorts the vocabulary: the `k` best are
//! kept while one pass runs over it, and top-p asks for more of them until their probability suffices.

use std::cmp::Ordering;

use crate::error::{Error, Result};

/// A token and its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub logit: f32,
    pub id: u32,
}

/// Larger logits first; among equals the lower id.
fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// The largest logit, of the lowest id among equals, in one pass.
///
/// # Errors
/// [`Error::Argument`] where a logit is NaN or positive infinity, or all are negative infinity.
pub(crate) fn largest(logits: &[f32]) -> Result<Candidate> {
    const CHUNK: usize = 512;
    let (mut best, mut start) = (f32::NEG_INFINITY, 0);
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        // Comparisons that NaN fails, and no early exit: the loop becomes SIMD.
        let (mut sound, mut most) = (true, f32::NEG_INFINITY);
        for &logit in chunk {
            sound &= logit < f32::INFINITY;
            most = if logit > most { logit } else { most };
        }
        if !sound {
            return Err(damaged());
        }
        if most > best {
            (best, start) = (most, index * CHUNK);
        }
    }
    match logits[start..].iter().position(|&logit| logit == best) {
        Some(offset) if best > f32::NEG_INFINITY => Ok(Candidate { logit: best, id: (start + offset) as u32 }),
        _ => Err(none_left()),
    }
}

fn damaged() -> Error {
    Error::argument("logits", "hold NaN or infinity: the model or its input is damaged")
}

fn none_left() -> Error {
    Error::argument("logits", "are all negative infinity: no token is left to choose")
}

/// The index drawn from `softmax(logits / temperature)` by a uniform number from 0 to below 1; `largest` is the largest logit.
pub(super) fn draw(logits: impl Iterator<Item = f32> + Clone, largest: f32, temperature: f32, uniform: f64) -> usize {
    let weight = |logit: f32| (f64::from(logit - largest) / f64::from(temperature)).exp();
    let total: f64 = logits.clone().map(weight).sum();
    let mut left = uniform * total;
    let mut last = 0;
    for (index, logit) in logits.enumerate() {
        let weight = weight(logit);
        if weight > 0.0 {
            last = index;
            left -= weight;
            if left < 0.0 {
                break;
            }
        }
    }
    last
}

/// The natural logarithm of the sum of the candidates' exponentials; the first is the best.
pub(super) fn log_total(candidates: &[Candidate]) -> f64 {
    let most = f64::from(candidates[0].logit);
    candidates.iter().map(|c| (f64::from(c.logit) - most).exp()).sum::<f64>().ln() + most
}

/// The memory of a selection, kept from token to token.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    best: Vec<Candidate>,
}

/// What keeps a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truncation {
    /// 0: all.
    pub top_k: usize,
    pub typical_p: f32,
    pub top_p: f32,
    pub min_p: f32,
}

impl Candidates {
    /// What the truncations keep, best first and never empty; `best` is the largest of the logits.
    pub(super) fn select(&mut self, logits: &[f32], best: Candidate, truncation: Truncation) -> &[Candidate] {
        let Truncation { top_k, typical_p, top_p, .. } = truncation;
        let weight = |logit: f32| f64::from(logit - best.logit).exp();
        let limit = if top_k == 0 { logits.len() } else { top_k.min(logits.len()) };
        if typical_p < 1.0 {
            self.take_best(logits, limit);
            return self.keep(truncation);
        }
        // The total is needed to know what share the best have; with top-k it is taken over those alone.
        let whole = (top_k == 0 && top_p < 1.0).then(|| logits.iter().map(|&l| weight(l)).sum::<f64>());
        let mut wanted = if top_k == 0 { limit.min(256) } else { limit };
        let kept = loop {
            self.take_best(logits, wanted);
            let (kept, has_end) = self.cut(whole, top_p, truncation.min_p);
            if wanted == limit || has_end {
                break kept;
            }
            wanted = limit.min(wanted * 8);
        };
        &self.best[..kept]
    }

    /// What the truncations but top-k keep of the best, which come best first.
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

    /// The `k` best of `logits`, sorted.
    pub(super) fn best_of(&mut self, logits: &[f32], k: usize) -> &mut [Candidate] {
        self.take_best(logits, k);
        &mut self.best
    }

    fn keep(&mut self, truncation: Truncation) -> &[Candidate] {
        if truncation.typical_p < 1.0 {
            self.keep_typical(f64::from(truncation.typical_p));
        }
        let (kept, _) = self.cut(None, truncation.top_p, truncation.min_p);
        &self.best[..kept]
    }

    /// Keeps those first whose surprise is nearest to the entropy, until they have probability `p`; of equal ones the better.
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

    /// How many of the best are kept, one at least, and whether none beyond them could be. Without the `whole` weight of
    /// all logits, shares are those of the best.
    fn cut(&self, whole: Option<f64>, top_p: f32, min_p: f32) -> (usize, bool) {
        let weight = |logit: f32| f64::from(logit - self.best[0].logit).exp();
        let total = whole.unwrap_or_else(|| self.best.iter().map(|c| weight(c.logit)).sum());
        let nucleus = self.nucleus(top_p, total, weight);
        let kept = nucleus.unwrap_or(self.best.len());
        let likely = self.best[..kept].partition_point(|c| weight(c.logit) >= f64::from(min_p));
        (likely.max(1), nucleus.is_some() || likely < kept)
    }

    /// How many of the best reach `top_p` of the total weight; `None` where all of them together do not, or all are to be kept.
    fn nucleus(&self, top_p: f32, total: f64, weight: impl Fn(f32) -> f64) -> Option<usize> {
        let enough = f64::from(top_p) * total;
        let mut sum = 0.0;
        let reaches = |c: &Candidate| {
            sum += weight(c.logit);
            sum >= enough
        };
        if top_p < 1.0 { self.best.iter().position(reaches).map(|index| index + 1) } else { None }
    }

    /// Leaves the `k` best of `logits` in `self.best`, sorted.
    fn take_best(&mut self, logits: &[f32], k: usize) {
        let best = &mut self.best;
        best.clear();
        let capacity = 2 * k + 64;
        best.reserve(capacity.min(logits.len()));
        let mut threshold = f32::NEG_INFINITY;
        for (id, &logit) in logits.iter().enumerate() {
            // At an equal logit the earlier, lower id stays.
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
