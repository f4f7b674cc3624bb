//! Saves the runner's sequence, and restores it.

use std::io::{Read, Write};

use super::Runner;
use crate::Result;

/// Sessions: the sequence of a runner as bytes that outlive the process.
impl Runner {
    /// Writes the runner's sequence: its tokens, and everything that the model has computed for
    /// them. [`restore`](Self::restore) reads it, also on another device, with another number of
    /// threads, and in another process; the next tokens are those that this runner would generate.
    ///
    /// The size is about [`MemoryPlan::cache_per_token`](super::MemoryPlan::cache_per_token) for
    /// each token. The logits, samplers, and messages of a conversation are not included; a
    /// conversation is restored by its [`Message`](crate::Message)s, whose tokens the sequence then
    /// has.
    ///
    /// To replace a file, write another one beside it and rename that: then a process that ends
    /// early leaves the old file whole.
    ///
    /// ```
    /// use std::{fs, io::Cursor};
    ///
    /// use inkstone::Runner;
    ///
    /// let mut runner = Runner::from_gguf("tests/data/storyteller/storyteller.gguf")?;
    /// let prompt = runner.tokenizer().encode_prompt("Once upon a time")?;
    /// runner.prefill(&prompt)?;
    /// let mut session = vec![];
    /// runner.save(&mut session)?;
    ///
    /// let mut other = Runner::from_gguf("tests/data/storyteller/storyteller.gguf")?;
    /// other.restore(&mut Cursor::new(session))?;
    /// assert_eq!(other.decode_greedy(258)?, runner.decode_greedy(258)?);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Session`](crate::Error::Session) if the sequence has images, or the writer fails.
    /// Errors of the device.
    pub fn save(&mut self, mut writer: impl Write) -> Result<()> {
        self.decoder.save(self.sequence, self.fingerprint.value(), false, &mut writer)
    }

    /// Writes the tokens of the runner's sequence alone, 4 bytes each. After
    /// [`restore`](Self::restore), the next step computes them again.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub fn save_tokens(&mut self, mut writer: impl Write) -> Result<()> {
        self.decoder.save(self.sequence, self.fingerprint.value(), true, &mut writer)
    }

    /// Replaces the runner's sequence by one that [`save`](Self::save) or
    /// [`save_tokens`](Self::save_tokens) wrote with the same model. Reads no bytes after the
    /// session.
    ///
    /// The bytes may come from anyone: they are checked, and refused with an error at worst. A
    /// session states a fingerprint of the metadata and of the names, formats and shapes of the
    /// tensors, but not of the weights themselves, so a model that was trained further may accept
    /// it.
    ///
    /// The cache may be of another device, but must have the same
    /// [`cache_type`](super::RunnerBuilder::cache_type). After an error, the sequence is unchanged,
    /// or empty if the error was found in the cache.
    ///
    /// # Errors
    /// [`Error::Session`](crate::Error::Session) if the session is damaged, ends early, is of
    /// another model, cache type or version, or cannot be read;
    /// [`Error::ContextFull`](crate::Error::ContextFull) if it is longer than the context;
    /// [`Error::Memory`](crate::Error::Memory) if the cache has no room for it. Errors of the
    /// device.
    pub fn restore(&mut self, mut reader: impl Read) -> Result<()> {
        self.sequence = self.decoder.restore(self.sequence, self.fingerprint.value(), &mut reader)?;
        Ok(())
    }
}
