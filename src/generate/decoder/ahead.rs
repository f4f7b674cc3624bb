//! The most probable tokens, where the device goes on with each before anybody asks.

use super::{Decoder, Wanted};
use crate::{
    Error, Result,
    backend::Run,
    kv_cache::{SequenceId, Stage},
    sampler::largest,
};

/// A step of one token that was started before it was known to be wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    sequence: SequenceId,
    position: usize,
    token: u32,
}

impl Decoder {
    /// Appends one token to a sequence and returns the most probable one to follow, the lowest id among equals. Where the
    /// device can, it goes on with that one before anybody asks: then a token costs no wait for the logits, which are not
    /// to be had.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Argument`] where some logit is not a number.
    pub fn greedy(&mut self, id: SequenceId, token: u32) -> Result<u32> {
        if self.recompute || self.executable.ahead().is_none() {
            let logits = self.step(&[(id, &[token], Wanted::Last)])?;
            return largest(logits).map(|best| best.id);
        }
        self.check_ids(&[token])?;
        let position = self.tokens(id)?.len();
        if self.pending != Some(Pending { sequence: id, position, token }) {
            self.settle()?;
            if self.cache.len(id)? < position {
                let logits = self.step(&[(id, &[token], Wanted::Last)])?;
                return largest(logits).map(|best| best.id);
            }
            self.start(id, Some(token))?;
        }
        self.pending = None;
        self.tokens.entry(id).or_default().push(token);
        self.logits.clear();
        // At the context's end nothing is left to start.
        let started = self.start(id, None).is_ok();
        let next = self.take();
        let token = *next.as_ref().unwrap_or(&token);
        self.pending = started.then_some(Pending { sequence: id, position: position + 1, token });
        if next.is_err() {
            self.truncate(id, position)?;
        }
        next
    }

    /// Starts a step of one token.
    fn start(&mut self, id: SequenceId, token: Option<u32>) -> Result<()> {
        let position = self.cache.extend(id, 1)?;
        self.copies.extend(self.cache.take_copies());
        let started = self.start_at(id, token, position);
        match started {
            Ok(()) => self.copies.clear(),
            Err(_) => _ = self.cache.truncate(id, position)?,
        }
        started
    }

    fn start_at(&mut self, id: SequenceId, token: Option<u32>, position: usize) -> Result<()> {
        let state = self.cache.advance(id, position + 1, Stage::Ahead)?;
        let run = Run { len: 1, start: position, pages: self.cache.pages(id)?, state: state.as_ref() };
        match self.executable.ahead() {
            Some(ahead) => ahead.start(token, run, &self.copies),
            None => Err(Error::Unsupported("this device does not run ahead".into())),
        }
    }

    fn take(&mut self) -> Result<u32> {
        let taken = match self.executable.ahead() {
            Some(ahead) => ahead.take()?,
            None => None,
        };
        taken.ok_or_else(|| Error::argument("logits", "has one that is not a number"))
    }

    /// Lets a step that was started too early end, and forgets it.
    pub(super) fn settle(&mut self) -> Result<()> {
        let Some(Pending { sequence, position, .. }) = self.pending.take() else { return Ok(()) };
        if let Some(ahead) = self.executable.ahead() {
            ahead.take()?;
        }
        self.cache.truncate(sequence, position)?;
        Ok(())
    }
}
