//! Keeps the ids of the prompt and the sampled text, and applies the penalties for repetition.

use std::collections::HashMap;

use super::{Dry, SamplerOptions};

/// The largest length of a repetition that counts, so that its penalty stays finite.
const MAX_REPETITION: usize = 50;

/// The ids so far, and the number of occurrences of each id in the penalty window.
#[derive(Debug, Default)]
pub(super) struct History {
    ids: Vec<u32>,
    counts: HashMap<u32, u32>,
}

impl History {
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub fn push(&mut self, id: u32, options: &SamplerOptions) {
        self.ids.push(id);
        if !options.has_penalties() {
            return;
        }
        *self.counts.entry(id).or_insert(0) += 1;
        if self.ids.len() > options.penalty_window {
            let old = self.ids[self.ids.len() - options.penalty_window - 1];
            match self.counts.get_mut(&old) {
                Some(count) if *count > 1 => *count -= 1,
                _ => _ = self.counts.remove(&old),
            }
        }
    }

    /// Penalizes the tokens in the penalty window.
    pub fn penalize(&self, logits: &mut [f32], options: &SamplerOptions) {
        for (&id, &count) in &self.counts {
            let logit = &mut logits[id as usize];
            let repetition = options.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
            *logit -= count as f32 * options.frequency_penalty + options.presence_penalty;
        }
    }

    /// Penalizes the tokens that would continue a repetition.
    pub fn discourage_repetition(&self, logits: &mut [f32], dry: &Dry) {
        for (id, len) in self.repetitions(dry) {
            if let Some(beyond) = len.checked_sub(dry.allowed_length) {
                logits[id as usize] -= dry.multiplier * dry.base.powi(beyond as i32);
            }
        }
    }

    /// Returns the tokens that followed earlier occurrences of the text's end, with the length of
    /// the longest such occurrence.
    fn repetitions(&self, dry: &Dry) -> HashMap<u32, usize> {
        let ids = &self.ids[self.ids.len().saturating_sub(dry.window)..];
        let mut longest = HashMap::new();
        let Some((last, before)) = ids.split_last().filter(|(last, _)| !dry.breakers.contains(last)) else {
            return longest;
        };
        for (index, _) in before.iter().enumerate().filter(|(_, id)| *id == last) {
            let next = ids[index + 1];
            if dry.breakers.contains(&next) {
                continue;
            }
            let earlier = ids[..index].iter().rev().zip(before.iter().rev());
            let same = earlier.take_while(|(then, now)| then == now && !dry.breakers.contains(now));
            let len = 1 + same.take(MAX_REPETITION - 1).count();
            let known = longest.entry(next).or_insert(0);
            *known = len.max(*known);
        }
        longest
    }
}
