//! Drafts tokens with a smaller model that has the same vocabulary.

use super::{Drafter, MAX_ROWS};
use crate::{
    Result,
    generate::{Decoder, decoder::Choices},
    kv_cache::SequenceId,
};

/// A model that drafts greedily for one text at a time, in a sequence of its own.
#[derive(Debug)]
pub(crate) struct DraftModel {
    decoder: Decoder,
    /// Opened for the first text.
    sequence: Option<SequenceId>,
}

/// Returns the same model without a sequence.
impl Clone for DraftModel {
    fn clone(&self) -> Self {
        Self::new(self.decoder.clone())
    }
}

impl DraftModel {
    pub fn new(decoder: Decoder) -> Self {
        Self { decoder, sequence: None }
    }

    fn sequence(&mut self) -> SequenceId {
        *self.sequence.get_or_insert_with(|| self.decoder.open())
    }

    /// Returns whether the model has all `ids` in its vocabulary, and room for them and `more`
    /// tokens in its context.
    fn takes(&self, ids: &[u32], more: usize) -> bool {
        let vocab_size = self.decoder.limits().vocab_size;
        ids.len() + more <= self.decoder.context_length() && ids.iter().all(|id| (*id as usize) < vocab_size)
    }

    /// Appends tokens to a sequence, and returns the most probable next one.
    fn next(&mut self, sequence: SequenceId, ids: &[u32]) -> Result<Option<u32>> {
        let choices = self.decoder.choose(&[(sequence, ids)], None)?;
        self.decoder.accept_drafted(sequence, ids.len() - 1);
        Ok(match choices {
            Choices::MostProbable(next) => next.last().copied(),
            Choices::Top(_) | Choices::Logits => None,
        })
    }

    /// Drafts up to `max` tokens from `next` on, which the sequence lacks.
    fn extend(&mut self, sequence: SequenceId, mut next: Option<u32>, max: usize, draft: &mut Vec<u32>) -> Result<()> {
        while let Some(token) = next {
            draft.push(token);
            next = if draft.len() < max { self.next(sequence, &[token])? } else { None };
        }
        Ok(())
    }
}

impl Drafter for DraftModel {
    fn start(&mut self, prompt: &[u32], goes_on: &dyn Fn() -> bool) -> Result<()> {
        if !prompt.is_empty() && self.takes(prompt, 0) {
            let sequence = self.sequence();
            self.decoder.prefill(sequence, prompt, |_, _| goes_on())?;
        }
        Ok(())
    }

    fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
        if max == 0 || ids.is_empty() || !self.takes(ids, max) {
            return Ok(());
        }
        let sequence = self.sequence();
        let held = self.decoder.tokens(sequence)?;
        let shared = held.iter().zip(&ids[..ids.len() - 1]).take_while(|(held, id)| held == id).count();
        self.decoder.truncate(sequence, shared)?;
        if ids.len() - shared > MAX_ROWS {
            self.decoder.prefill(sequence, &ids[..ids.len() - 1], |_, _| true)?;
        }
        let held = self.decoder.tokens(sequence)?.len();
        let next = self.next(sequence, &ids[held..])?;
        if !self.decoder.is_recurrent() {
            return self.extend(sequence, next, max, draft);
        }
        // A state cannot be truncated, so the drafted tokens are appended to a fork.
        let fork = self.decoder.fork(sequence)?;
        let extended = self.extend(fork, next, max, draft);
        self.decoder.close(fork)?;
        extended
    }
}
