//! Opens, forks, shortens and closes sequences.

use super::{
    Decoder,
    sequence::{SequenceTokens, start_of_image},
};
use crate::{Error, Result, kv_cache::SequenceId, profile::FEW_ROWS};

impl Decoder {
    /// Opens an empty sequence.
    pub fn open(&mut self) -> SequenceId {
        let id = self.turns.with_engine(|engine| engine.cache.open());
        self.tokens.insert(id, SequenceTokens::default());
        id
    }

    /// Opens a sequence with the tokens of `id`. This takes no computation, and no memory until one
    /// of the two grows.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        self.remove_drafted(id)?;
        let tokens = self.held(id)?.clone();
        let fork = self.turns.with_engine(|engine| engine.fork(id))?;
        self.tokens.insert(fork, tokens);
        Ok(fork)
    }

    /// Closes a sequence. Its tokens stay in the cache for later texts that begin with them, until
    /// an open sequence needs the memory.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub fn close(&mut self, id: SequenceId) -> Result<()> {
        let held = self.held(id)?;
        self.turns.with_engine(|engine| engine.retire(id, held))?;
        self.remove(id);
        Ok(())
    }

    /// Closes a sequence, and frees its memory.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub(crate) fn discard(&mut self, id: SequenceId) -> Result<()> {
        self.held(id)?;
        self.turns.with_engine(|engine| engine.close(id))?;
        self.remove(id);
        Ok(())
    }

    fn remove(&mut self, id: SequenceId) {
        self.tokens.remove(&id);
        self.speculators.remove(&id);
    }

    /// Removes the tokens of a sequence from position `len` on, and an image that `len` cuts as a
    /// whole; has no effect if the sequence is shorter. The removed tokens stay in the cache as
    /// those of a [closed](Self::close) sequence, unless one step of few tokens computes them.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<()> {
        let held = self.held(id)?;
        if held.text_and_drafted().0.len() >= len.saturating_add(FEW_ROWS) {
            self.turns.with_engine(|engine| engine.keep(id, held))?;
        }
        self.shorten(id, len)
    }

    /// Removes the tokens of a sequence as [`truncate`](Self::truncate) does, and keeps none.
    pub(super) fn shorten(&mut self, id: SequenceId, len: usize) -> Result<()> {
        let len = start_of_image(&self.held(id)?.images, len);
        self.turns.with_engine(|engine| {
            engine.discard_pipelined(id)?;
            engine.truncate(id, len, len)
        })?;
        if let Some(tokens) = self.tokens.get_mut(&id) {
            tokens.truncate(len);
        }
        Ok(())
    }

    /// Returns the tokens of a sequence. The ids of tokens in the place of an image's rows are 0.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub fn tokens(&self, id: SequenceId) -> Result<&[u32]> {
        self.held(id).map(|held| held.text_and_drafted().0)
    }

    pub(super) fn held(&self, id: SequenceId) -> Result<&SequenceTokens> {
        self.tokens.get(&id).ok_or_else(|| Error::argument("sequence", "is not open in this decoder"))
    }
}
