//! Chooses a token from the largest logits, where they determine the choice.

use super::{
    Sampler,
    candidates::{Candidate, best_first},
    draw_truncated,
};
use crate::error::Result;

impl Sampler {
    /// Returns the number of largest logits, after all changes, that determine the draw; `None` if
    /// it needs all of them.
    pub(crate) fn required_top_k(&self) -> Option<usize> {
        self.options.required_top_k().filter(|_| self.processors.is_empty())
    }

    /// Returns whether a constraint, a bias or a penalty may change the logits.
    pub(crate) fn changes_logits(&self) -> bool {
        self.constraint.is_some() || self.options.changes_logits()
    }

    /// Chooses the next token as [`sample`](Self::sample) does, given only the largest logits,
    /// largest first and NaN before them. Returns `None`, and changes nothing, if they do not
    /// determine the choice. `row` is scratch.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub(crate) fn sample_top(&mut self, top: &[Candidate], row: &mut Vec<f32>) -> Result<Option<u32>> {
        let Some(count) = self.required_top_k().map(|count| count.min(self.vocab_size)) else { return Ok(None) };
        let is_damaged = top.first().is_some_and(|first| first.logit.is_nan() || first.logit == f32::INFINITY);
        let best = if self.changes_logits() && !is_damaged {
            let (best, bound) = self.changed(top, row)?;
            if bound > f32::NEG_INFINITY && best.get(count - 1).is_none_or(|last| last.logit <= bound) {
                return Ok(None);
            }
            best
        } else if top.len() < count {
            return Ok(None);
        } else {
            top.to_vec()
        };
        let best = best.into_iter().take(count).filter(|candidate| candidate.logit != f32::NEG_INFINITY);
        let Self { options, candidates, random, .. } = self;
        let kept = candidates.select_of_best(best, options.truncation())?;
        let id = if options.temperature == 0.0 { kept[0].id } else { draw_truncated(kept, options, random) };
        self.history.push(id, &self.options);
        Ok(Some(id))
    }

    /// Returns the candidates after all changes, largest first, and an upper bound of all other
    /// logits. Each logit changes by itself, and never exceeds a logit of another token that was
    /// larger and changed alike; so the smallest candidate replaces all other logits.
    fn changed(&mut self, top: &[Candidate], row: &mut Vec<f32>) -> Result<(Vec<Candidate>, f32)> {
        let others = match top.last() {
            Some(last) if top.len() < self.vocab_size => last.logit,
            _ => f32::NEG_INFINITY,
        };
        row.clear();
        row.resize(self.vocab_size, others);
        top.iter().for_each(|candidate| row[candidate.id as usize] = candidate.logit);
        self.change(row)?;
        let take = |&Candidate { id, .. }: &Candidate| {
            let logit = std::mem::replace(&mut row[id as usize], f32::NEG_INFINITY);
            Candidate { logit, id }
        };
        let mut best: Vec<_> = top.iter().map(take).collect();
        best.sort_unstable_by(best_first);
        let bound = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Ok((best, bound))
    }
}
