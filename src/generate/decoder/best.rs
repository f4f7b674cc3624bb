//! Runs steps of the last tokens of texts, after which the device selects the largest logits.

use super::{Decoder, Limits, LogitsFor, StepOutput, call::Role, single_runs};
use crate::{Result, backend::TopLogits, kv_cache::SequenceId};

/// The choice that a step makes after each of its tokens.
#[derive(Debug, Default)]
pub(in crate::generate) enum Choices {
    /// The most probable next token.
    MostProbable(Vec<u32>),
    /// The largest logits.
    Top(Vec<TopLogits>),
    /// None: [`Decoder::logits_mut`] has all logits.
    #[default]
    Logits,
}

/// A token of a step, after which another one is chosen.
#[derive(Clone, Copy, Debug)]
pub(in crate::generate) struct ChoiceAt {
    pub sequence: SequenceId,
    /// Number of tokens in the sequence up to the token.
    pub len: usize,
    /// The token's number among the tokens of the step.
    pub output: usize,
}

impl Decoder {
    /// Appends one token to each sequence, in one step, and returns the `count` largest logits
    /// after each, if the device selects them. Otherwise returns `None`, and
    /// [`logits_mut`](Self::logits_mut) has all logits.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    #[doc(hidden)]
    pub fn best(&mut self, tokens: &[(SequenceId, u32)], count: usize) -> Result<Option<&[TopLogits]>> {
        let Limits { max_tokens, max_outputs, .. } = self.limits;
        // The device has the logits of one step.
        let selects = count > 0 && tokens.len() <= max_tokens.min(max_outputs);
        let output = if selects { StepOutput::Top(count) } else { StepOutput::Logits };
        self.extend(&single_runs(tokens), output, Role::Given)?;
        Ok(if self.top.is_empty() { None } else { Some(&self.top) })
    }

    /// Appends tokens to sequences, in one step, and chooses after each: `count` largest logits, or
    /// the most probable token if it is `None`. All but the first token of a sequence count as
    /// drafted. They are removed by the next call for the sequence, unless
    /// [`accept_drafted`](Self::accept_drafted) accepts them before.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub(in crate::generate) fn choose(
        &mut self,
        runs: &[(SequenceId, &[u32])],
        count: Option<usize>,
    ) -> Result<Choices> {
        let Limits { max_tokens, max_outputs, .. } = self.limits;
        let outputs: usize = runs.iter().map(|(_, tokens)| tokens.len()).sum();
        // The device has the logits of one step.
        let selects = outputs <= max_tokens.min(max_outputs);
        let output = match count {
            None => StepOutput::Greedy,
            Some(count) if count > 0 && selects => StepOutput::Top(count),
            Some(_) => StepOutput::Logits,
        };
        let role = if outputs > runs.len() { Role::Drafted } else { Role::Given };
        let with_logits: Vec<_> = runs.iter().map(|(id, tokens)| (*id, *tokens, LogitsFor::All)).collect();
        let next = self.extend(&with_logits, output, role)?;
        for (id, tokens) in runs {
            self.tokens.entry(*id).or_default().drafted = tokens.len() - 1;
        }
        Ok(match next {
            Some(next) => Choices::MostProbable(next),
            None if self.top.is_empty() => Choices::Logits,
            None => Choices::Top(std::mem::take(&mut self.top)),
        })
    }

    /// Returns all logits after a token of the last step, which selected the largest ones. The
    /// caller may change them. If another decoder has computed a step since, the token is computed
    /// again, and the tokens after it are removed.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub(in crate::generate) fn all_logits(&mut self, at: ChoiceAt) -> Result<&mut [f32]> {
        let ChoiceAt { sequence: id, len, output: index } = at;
        let Self { turns, top_rows, logits, .. } = self;
        let is_read = turns.with_engine(|engine| {
            if engine.work.steps != top_rows.step {
                return Ok(false);
            }
            logits.clear();
            logits.extend_from_slice(engine.executable.logits_of_last(top_rows.first + index)?);
            Ok(true)
        });
        if !is_read? && let Some(&last) = self.tokens(id)?.get(len - 1) {
            self.truncate(id, len - 1)?;
            self.step(&[(id, &[last], LogitsFor::Last)])?;
        }
        Ok(&mut self.logits)
    }
}
