//! The most probable tokens, where the device goes on with each before anybody asks.

use super::{Decoder, Wanted, engine::Pending, lock};
use crate::{Result, kv_cache::SequenceId, sampler::largest};

impl Decoder {
    /// Appends one token to a sequence and returns the most probable one to follow, the lowest id among equals. Where the
    /// device can, it goes on with that one before anybody asks: then a token costs no wait for the logits, which are not
    /// to be had.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Argument`](crate::Error::Argument) where some logit is not a number.
    pub fn greedy(&mut self, id: SequenceId, token: u32) -> Result<u32> {
        self.check_ids(&[token])?;
        let position = self.tokens(id)?.len();
        match self.greedy_ahead(id, token, position)? {
            Some(next) => {
                self.tokens.entry(id).or_default().push(token);
                self.logits.clear();
                Ok(next)
            }
            None => {
                let logits = self.step(&[(id, &[token], Wanted::Last)])?;
                largest(logits).map(|best| best.id)
            }
        }
    }

    /// `None` where the device does not go ahead, or the cache lacks some of the sequence.
    fn greedy_ahead(&mut self, id: SequenceId, token: u32, position: usize) -> Result<Option<u32>> {
        let mut engine = lock(&self.engine);
        if self.recompute || engine.executable.ahead().is_none() {
            return Ok(None);
        }
        if engine.pending != Some(Pending { sequence: id, position, token }) {
            engine.settle()?;
            if engine.cache.len(id)? < position {
                return Ok(None);
            }
            engine.start(id, Some(token))?;
        }
        engine.pending = None;
        // At the context's end nothing is left to start.
        let started = engine.start(id, None).is_ok();
        let next = engine.take();
        let token = *next.as_ref().unwrap_or(&token);
        engine.pending = started.then_some(Pending { sequence: id, position: position + 1, token });
        if next.is_err() {
            engine.settle()?;
            engine.cache.truncate(id, position)?;
        }
        next.map(Some)
    }
}
