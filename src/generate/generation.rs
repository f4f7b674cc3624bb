//! A text in the making, as an iterator over its pieces.

use std::{fmt, iter::FusedIterator, time::Instant};

use super::{Decoder, GenerateOptions, StopHandle, StopReason, Summary, continuation::Continuation};
use crate::{
    Result,
    kv_cache::SequenceId,
    sampler::{LogitsProcessor, Logprobs},
    tokenizer::Tokenizer,
};

/// Generates a text piece by piece: an iterator over `Result<String>`.
///
/// The prompt is computed within the first call of `next`, or before by [`prefill`](Self::prefill). A piece is a whole
/// number of characters and may be of several tokens. Dropping the generation ends it; the sequence then holds the
/// prompt and what was generated, so that a prompt that goes on from there costs its new tokens only.
pub struct Generation<'a> {
    decoder: &'a mut Decoder,
    sequence: SequenceId,
    prompt: Vec<u32>,
    state: State,
    text: Continuation,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// The prompt is yet to be computed.
    Prompt,
    /// The decoder has the logits of the next token.
    Logits,
    /// This token was given out and is not in the cache.
    Token(u32),
}

impl<'a> Generation<'a> {
    /// A generation that will make `sequence` hold `prompt`, keeping what they share, and go on from there.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for an empty prompt, an id past the vocabulary, an option out of its
    /// range or a sequence that is not open; [`Error::ContextFull`](crate::Error::ContextFull) where the prompt is longer
    /// than the context.
    pub fn new(
        decoder: &'a mut Decoder,
        sequence: SequenceId,
        prompt: Vec<u32>,
        tokenizer: &Tokenizer,
        options: &GenerateOptions,
    ) -> Result<Self> {
        decoder.tokens(sequence)?;
        decoder.check_prompt(&prompt)?;
        let text = Continuation::new(&prompt, tokenizer, options, decoder.limits().vocab_size)?;
        Ok(Self { decoder, sequence, prompt, state: State::Prompt, text })
    }

    /// Adds a stage to the sampler, after those added already and before all others. It is given the ids of the prompt, too.
    #[must_use]
    pub fn with_processor(self, processor: impl LogitsProcessor + 'static) -> Self {
        Self { text: self.text.with_processor(processor), ..self }
    }

    /// Keeps what is generated to a form.
    #[cfg(feature = "constrained")]
    pub(crate) fn with_form(self, form: impl LogitsProcessor + 'static) -> Self {
        Self { text: self.text.with_form(form), ..self }
    }

    /// Gives the names of these control tokens too, which are otherwise no part of the text.
    #[must_use]
    pub fn showing(self, ids: impl IntoIterator<Item = u32>) -> Self {
        Self { text: self.text.showing(ids), ..self }
    }

    /// Lets this handle stop the generation, in the place of its own.
    #[must_use]
    pub fn with_stop_handle(self, handle: StopHandle) -> Self {
        Self { text: self.text.with_stop_handles(vec![handle]), ..self }
    }

    /// A handle that stops this generation from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        self.text.stop_handles()[0].clone()
    }

    /// The ids of the prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// The ids generated so far.
    pub fn ids(&self) -> &[u32] {
        self.text.ids()
    }

    /// How probable the model found each of [`ids`](Self::ids), before any stage of the sampler; empty where
    /// [`GenerateOptions::logprobs`] did not ask for it.
    pub fn logprobs(&self) -> &[Logprobs] {
        self.text.logprobs()
    }

    /// How it went; complete once the iterator has ended.
    pub fn summary(&self) -> &Summary {
        &self.text.summary
    }

    /// Computes the prompt now, unless that was done. `progress` is told how many of its tokens are done and how many
    /// there are, before each chunk and at the end; where it returns false the generation ends.
    ///
    /// # Errors
    /// Whatever the device reports; the generation has then ended.
    pub fn prefill(&mut self, mut progress: impl FnMut(usize, usize) -> bool) -> Result<()> {
        if self.state != State::Prompt || self.text.is_done() {
            return Ok(());
        }
        let started = Instant::now();
        let Self { decoder, sequence, prompt, text, .. } = self;
        let progress = |done, total| !text.is_stopped() && progress(done, total);
        let result = decoder.prefill(*sequence, prompt, progress);
        text.summary.prefill = started.elapsed();
        let prefill = result.inspect_err(|_| text.end(StopReason::Error))?;
        text.summary.cached_tokens = prefill.cached;
        if prefill.complete {
            self.state = State::Logits;
        } else {
            text.end(StopReason::Caller);
        }
        Ok(())
    }

    /// Chooses one more token, and returns the text that this settles, which may be none.
    fn advance(&mut self) -> Result<String> {
        let Self { decoder, sequence, state, text, .. } = self;
        let has_room = !matches!(state, State::Token(_)) || decoder.tokens(*sequence)?.len() < decoder.context_length();
        if let Some(rest) = text.end_if_due(has_room) {
            return Ok(rest);
        }
        let id = match *state {
            State::Token(id) => text.step(decoder, *sequence, id)?,
            State::Prompt | State::Logits => text.sample(decoder.logits())?,
        };
        *state = State::Token(id);
        text.push(id)
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.prefill(|_, _| true) {
            return Some(Err(error));
        }
        let started = Instant::now();
        let mut piece = Ok(String::new());
        while !self.text.is_done() && matches!(&piece, Ok(text) if text.is_empty()) {
            piece = self.advance();
        }
        self.text.summary.decode += started.elapsed();
        if piece.is_err() {
            self.text.end(StopReason::Error);
        }
        Some(piece).filter(|piece| !matches!(piece, Ok(text) if text.is_empty()))
    }
}

impl FusedIterator for Generation<'_> {}

impl fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, prompt, text, .. } = self;
        f.debug_struct("Generation")
            .field("sequence", sequence)
            .field("prompt", prompt)
            .field("generated", &text.ids())
            .field("summary", &text.summary)
            .finish_non_exhaustive()
    }
}
