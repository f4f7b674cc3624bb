//! Runs steps after which the device selects the largest logits.

use super::{Decoder, Limits, LogitsFor, StepOutput, single_runs};
use crate::{Result, backend::TopLogits, kv_cache::SequenceId};

impl Decoder {
    /// Appends one token to each sequence, in one step, and returns the `count` largest logits
    /// after each, if the device selects them. [`all_logits`](Self::all_logits) returns the other
    /// ones. Otherwise returns `None`, and [`logits_mut`](Self::logits_mut) has all logits.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    #[doc(hidden)]
    pub fn best(&mut self, tokens: &[(SequenceId, u32)], count: usize) -> Result<Option<&[TopLogits]>> {
        let Limits { max_tokens, max_outputs, .. } = self.limits;
        // The device has the logits of one step.
        let selects = count > 0 && tokens.len() <= max_tokens.min(max_outputs);
        let output = if selects { StepOutput::Top(count) } else { StepOutput::Logits };
        self.extend(&single_runs(tokens), output, None)?;
        Ok(if self.top.is_empty() { None } else { Some(&self.top) })
    }

    /// Returns all logits after sequence `id`, whose token was number `index` of the tokens that
    /// [`best`](Self::best) has just appended. The caller may change them.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    #[doc(hidden)]
    pub fn all_logits(&mut self, id: SequenceId, index: usize) -> Result<&mut [f32]> {
        let Self { turns, top_step, logits, .. } = self;
        let is_read = turns.with_engine(|engine| {
            if engine.steps != *top_step {
                return Ok(false);
            }
            logits.clear();
            logits.extend_from_slice(engine.executable.logits_of_last(index)?);
            Ok(true)
        });
        // Another decoder has computed a step since, which replaced the logits.
        if !is_read? && let [.., last] = *self.tokens(id)? {
            self.truncate(id, self.tokens(id)?.len() - 1)?;
            self.step(&[(id, &[last], LogitsFor::Last)])?;
        }
        Ok(&mut self.logits)
    }
}
