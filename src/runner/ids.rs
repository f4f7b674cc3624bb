//! Generates token ids, computes logits, and manages the runner's sequence of tokens.

use super::Runner;
use crate::{
    Result,
    generate::{Decoder, LogitsFor, Statistics},
    kv_cache::SequenceId,
    sampler::{Sampler, SamplerOptions},
};

impl Runner {
    /// Returns up to `n` ids that continue `ids`, each the most probable one after the ids before
    /// it. `on_token` is called with each id, and ends the generation by returning false. It also
    /// ends before an end-of-generation token, which is not returned, and at the end of the
    /// context.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if `ids` is empty or has an id that is not in
    /// the vocabulary; [`Error::ContextFull`](crate::Error::ContextFull) if the context has no room
    /// for them.
    pub fn generate_ids(&mut self, ids: &[u32], n: usize, mut on_token: impl FnMut(u32) -> bool) -> Result<Vec<u32>> {
        self.decoder.prefill(self.sequence, ids, |_, _| true)?;
        self.continue_ids(n, &mut on_token)
    }

    /// Returns up to `n` ids that continue the sequence after a prefill, as
    /// [`generate_ids`](Self::generate_ids) does.
    pub(super) fn continue_ids(&mut self, n: usize, on_token: &mut dyn FnMut(u32) -> bool) -> Result<Vec<u32>> {
        let mut sampler = Sampler::new(&SamplerOptions::greedy(), self.config.vocab_size)?;
        let mut generated = vec![];
        let mut id = sampler.sample(self.decoder.logits_mut())?;
        while generated.len() < n {
            if self.tokenizer.is_end_of_generation(id) {
                break;
            }
            generated.push(id);
            if !on_token(id) || generated.len() == n || self.tokens().len() == self.context_length() {
                break;
            }
            id = self.decode_greedy(id)?;
        }
        Ok(generated)
    }

    /// Returns the logits of the token after `ids`, `[vocabulary]`. All ids are computed again, and
    /// the sequence is then `ids`.
    ///
    /// # Errors
    /// As [`generate_ids`](Self::generate_ids).
    pub fn predict_logits(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.decoder.check_prompt(ids)?;
        self.reset();
        self.prefill(ids).map(<[f32]>::to_vec)
    }

    /// Appends `ids` to the sequence, and returns the logits of the next token, `[vocabulary]`.
    ///
    /// # Errors
    /// As [`generate_ids`](Self::generate_ids); the sequence is then unchanged.
    pub fn prefill(&mut self, ids: &[u32]) -> Result<&[f32]> {
        self.decoder.step(&[(self.sequence, ids, LogitsFor::Last)]).map(|logits| &*logits)
    }

    /// Appends one id to the sequence, and returns the logits of the next token, `[vocabulary]`.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn decode(&mut self, id: u32) -> Result<&[f32]> {
        self.prefill(&[id])
    }

    /// Appends one id to the sequence, and returns the most probable next id. This is faster than
    /// choosing it from the logits of [`decode`](Self::decode) if the device can choose it.
    ///
    /// # Errors
    /// As [`Decoder::greedy`].
    pub fn decode_greedy(&mut self, id: u32) -> Result<u32> {
        self.decoder.greedy(self.sequence, id)
    }

    /// Returns the ids of the sequence.
    pub fn tokens(&self) -> &[u32] {
        self.decoder.tokens(self.sequence).unwrap_or_default()
    }

    /// Removes the ids of the sequence from position `len` on; has no effect if the sequence is
    /// shorter.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the sequence was closed through
    /// [`decoder_mut`](Self::decoder_mut).
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        self.decoder.truncate(self.sequence, len)
    }

    /// Removes all ids of the sequence.
    pub fn reset(&mut self) {
        if self.truncate(0).is_err() {
            self.sequence = self.decoder.open();
        }
    }

    /// Removes the texts from the cache that no runner has as its sequence, but that were kept for
    /// prompts that begin with them; of this runner and its clones.
    pub fn clear_cache(&mut self) {
        self.decoder.close_kept();
    }

    /// Returns a snapshot of the work of this runner and its clones: calls that run and wait, the
    /// cache, and steps.
    pub fn statistics(&self) -> Statistics {
        self.decoder.statistics()
    }

    /// Returns the decoder that runs the steps, for several sequences at once or the logits of
    /// every token.
    pub fn decoder_mut(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// Returns the runner's sequence in its [`decoder_mut`](Self::decoder_mut).
    pub fn sequence(&self) -> SequenceId {
        self.sequence
    }
}
