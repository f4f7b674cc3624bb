//! Token ids and logits, and the runner's sequence of tokens.

use super::Runner;
use crate::{
    Result,
    generate::{Decoder, Wanted},
    kv_cache::SequenceId,
    sampler::{Sampler, SamplerOptions},
};

impl Runner {
    /// The `n` most probable ids after `ids`, each chosen with the ones before it. `on_token` is given each as it comes,
    /// and ends it by returning false. It also ends before an end-of-generation token, which is not returned, and where
    /// the context is full.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) where there are no ids or one is past the vocabulary, [`Error::ContextFull`](crate::Error::ContextFull) where there are
    /// more than the context has room for.
    pub fn generate_ids(&mut self, ids: &[u32], n: usize, mut on_token: impl FnMut(u32) -> bool) -> Result<Vec<u32>> {
        let mut sampler = Sampler::new(&SamplerOptions::greedy(), self.config.vocab_size)?;
        let mut generated = vec![];
        self.decoder.prefill(self.sequence, ids, |_, _| true)?;
        let mut id = sampler.sample(self.decoder.logits())?;
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

    /// The logits of what follows `ids`, `[vocabulary]`, all computed afresh; the sequence then holds `ids`.
    ///
    /// # Errors
    /// As [`generate_ids`](Self::generate_ids).
    pub fn predict_logits(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.decoder.check_prompt(ids)?;
        self.reset();
        self.prefill(ids).map(<[f32]>::to_vec)
    }

    /// Appends `ids` to the sequence and returns the logits of what follows, `[vocabulary]`.
    ///
    /// # Errors
    /// As [`generate_ids`](Self::generate_ids); the sequence is then as it was.
    pub fn prefill(&mut self, ids: &[u32]) -> Result<&[f32]> {
        self.decoder.step(&[(self.sequence, ids, Wanted::Last)]).map(|logits| &*logits)
    }

    /// Appends one id to the sequence and returns the logits of what follows, `[vocabulary]`.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn decode(&mut self, id: u32) -> Result<&[f32]> {
        self.prefill(&[id])
    }

    /// Appends one id to the sequence and returns the most probable one to follow: faster than to choose it from
    /// [`decode`](Self::decode)'s logits, where the device can choose by itself.
    ///
    /// # Errors
    /// As [`Decoder::greedy`].
    pub fn decode_greedy(&mut self, id: u32) -> Result<u32> {
        self.decoder.greedy(self.sequence, id)
    }

    /// The ids that the sequence holds.
    pub fn tokens(&self) -> &[u32] {
        self.decoder.tokens(self.sequence).unwrap_or_default()
    }

    /// Forgets every id of the sequence from `len` on; a `len` past its end changes nothing.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) where the sequence was closed through [`decoder`](Self::decoder).
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        self.decoder.truncate(self.sequence, len)
    }

    /// Empties the sequence.
    pub fn reset(&mut self) {
        if self.truncate(0).is_err() {
            self.sequence = self.decoder.open();
        }
    }

    /// What runs the steps: for several sequences at once, or the logits of every token.
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// The runner's own sequence in its [`decoder`](Self::decoder).
    pub fn sequence(&self) -> SequenceId {
        self.sequence
    }
}
