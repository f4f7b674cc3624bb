//! Generates one text, as an iterator over its pieces.

use std::{fmt, iter::FusedIterator, mem, time::Instant};

use super::{
    Decoder, GenerateOptions, GeneratedTokens, PlacedPrompt, Prefill, StopHandle, StopReason, Summary,
    continuation::Continuation,
    decoder::OpenRequest,
    speculation::{Drafter, TextSteps},
};
use crate::{
    Result,
    kv_cache::SequenceId,
    sampler::{LogitsProcessor, Logprobs},
    tokenizer::Tokenizer,
};

/// Generates a text piece by piece: an iterator over `Result<String>`.
///
/// The first call of `next` computes the prompt, unless [`prefill`](Self::prefill) has done it. A
/// piece consists of whole characters, and may come from several tokens. Dropping the generation
/// ends it. The sequence keeps the prompt and the generated tokens, so that a longer prompt that
/// continues them only computes its new tokens.
pub struct Generation<'a> {
    steps: TextSteps<'a>,
    prompt: PlacedPrompt,
    /// The salt of the prompt and the text.
    salt: Option<String>,
    state: GenerationState,
    text: Continuation,
    /// Text that an iterator over the tokens generated and did not return.
    leftover: String,
    /// Ends the request when it is dropped.
    _request: OpenRequest,
}

#[derive(Clone, Copy, PartialEq)]
enum GenerationState {
    /// The prompt has not been computed.
    Prompt,
    /// The decoder has the logits of the next token.
    Logits,
    /// The last token of the text, which is not in the cache yet.
    Token(u32),
}

impl<'a> Generation<'a> {
    /// Returns a generation that continues `prompt` in `sequence`. Tokens at the start of the
    /// prompt that the cache already has, of this or another sequence, are not computed again.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for an empty prompt, an id that is not in the
    /// vocabulary, an option out of its range, or a sequence that is not open;
    /// [`Error::ContextFull`](crate::Error::ContextFull) if the prompt is longer than the context.
    pub fn new(
        decoder: &'a mut Decoder,
        sequence: SequenceId,
        prompt: Vec<u32>,
        tokenizer: &Tokenizer,
        options: &GenerateOptions,
    ) -> Result<Self> {
        Self::with_images(decoder, sequence, prompt.into(), tokenizer, options)
    }

    /// Returns a generation like [`new`](Self::new) for a prompt with images, which are encoded
    /// when the prompt is computed.
    pub(crate) fn with_images(
        decoder: &'a mut Decoder,
        sequence: SequenceId,
        prompt: PlacedPrompt,
        tokenizer: &Tokenizer,
        options: &GenerateOptions,
    ) -> Result<Self> {
        decoder.tokens(sequence)?;
        decoder.check_prompt(&prompt.ids)?;
        let text = Continuation::new(&prompt, tokenizer, options, decoder.limits().vocab_size)?;
        let request = decoder.open_request(sequence, options.priority)?;
        let steps = TextSteps::new(decoder, sequence, options.speculation);
        let (salt, leftover) = (options.cache_salt.clone(), String::new());
        Ok(Self { steps, prompt, salt, state: GenerationState::Prompt, text, leftover, _request: request })
    }

    /// Adds a stage to the sampler, after the processors added earlier and before all other stages.
    /// Its `ids` include the prompt.
    #[must_use]
    pub fn with_processor(self, processor: impl LogitsProcessor + 'static) -> Self {
        Self { text: self.text.with_processor(processor), ..self }
    }

    /// Adds a drafter of tokens. Drafters change the speed of the generation, and never the text.
    #[must_use]
    pub fn with_drafter(mut self, drafter: impl Drafter + 'static) -> Self {
        self.steps.add_drafter(drafter);
        self
    }

    /// Sets the stage that constrains the text.
    #[cfg(feature = "constrained")]
    pub(crate) fn with_constraint(self, constraint: impl LogitsProcessor + 'static) -> Self {
        Self { text: self.text.with_constraint(constraint), ..self }
    }

    /// Includes the names of these control tokens in the text. Other control tokens have no text.
    #[must_use]
    pub fn showing(self, ids: impl IntoIterator<Item = u32>) -> Self {
        Self { text: self.text.showing(ids), ..self }
    }

    /// Replaces the stop handle of the generation.
    #[must_use]
    pub fn with_stop_handle(self, handle: StopHandle) -> Self {
        Self { text: self.text.with_stop_handles(vec![handle]), ..self }
    }

    /// Returns a handle that stops this generation, for example from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.text.stop_handles()[0].clone()
    }

    /// Returns the ids of the prompt, which are 0 in the place of an image's rows.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt.ids
    }

    /// Returns the ids generated so far.
    pub fn ids(&self) -> &[u32] {
        self.text.ids()
    }

    /// Returns the model's log-probabilities of [`ids`](Self::ids), before sampling; empty unless
    /// [`GenerateOptions::logprobs`] is set.
    pub fn logprobs(&self) -> &[Logprobs] {
        self.text.logprobs()
    }

    /// Returns the number of accepted drafts of each step so far, for comparisons.
    #[doc(hidden)]
    pub fn accepted_per_step(&self) -> &[usize] {
        self.steps.accepted_per_step()
    }

    /// Goes on after end-of-generation tokens, for comparisons.
    #[doc(hidden)]
    #[must_use]
    pub fn past_the_end(self) -> Self {
        Self { text: self.text.past_the_end(), ..self }
    }

    /// Returns the statistics, which are complete after the iterator has ended.
    pub fn summary(&self) -> &Summary {
        &self.text.summary
    }

    /// Computes the prompt now, if it has not been computed. `progress` is called with the number
    /// of computed tokens and the number of all tokens, before each chunk and at the end; if it
    /// returns false, the generation ends. The rows of an image count twice if the image has to be
    /// encoded first: when they are encoded, and when they are computed.
    ///
    /// # Errors
    /// Errors of the device, which end the generation.
    pub fn prefill(&mut self, mut progress: impl FnMut(usize, usize) -> bool) -> Result<()> {
        if self.state != GenerationState::Prompt || self.text.is_done() {
            return Ok(());
        }
        let started = Instant::now();
        let prefill = self.compute_prompt(&mut progress);
        self.text.summary.prefill = started.elapsed();
        let prefill = prefill.inspect_err(|_| self.text.end(StopReason::Error))?;
        self.text.summary.cached_tokens = prefill.cached;
        if prefill.complete {
            self.state = GenerationState::Logits;
        } else {
            self.text.end(StopReason::Caller);
        }
        Ok(())
    }

    fn compute_prompt(&mut self, progress: &mut dyn FnMut(usize, usize) -> bool) -> Result<Prefill> {
        let Self { steps, prompt, salt, text, .. } = self;
        steps.decoder.set_salt(steps.sequence, salt.as_deref())?;
        let progress = |done, total| !text.is_stopped() && progress(done, total);
        let prefill = steps.decoder.prefill_with_images(steps.sequence, &prompt.ids, &prompt.images, progress)?;
        if prefill.complete {
            steps.start(&prompt.ids, text)?;
        }
        Ok(prefill)
    }

    /// Returns an iterator over the tokens of the text, with their ids, texts and
    /// log-probabilities, as `Result<GeneratedToken>`. It returns a token as soon as its text is
    /// certain. Text of tokens that were generated earlier is added to the next token; if there is
    /// none, and after the iterator was dropped, [`next`](Iterator::next) returns it.
    ///
    /// ```
    /// use inkstone::{GenerateOptions, Runner};
    ///
    /// let mut runner = Runner::from_gguf("tests/data/storyteller/storyteller.gguf")?;
    /// let options = GenerateOptions { max_tokens: Some(8), logprobs: Some(0), ..Default::default() };
    /// for token in runner.generate("Once upon a time", &options)?.tokens() {
    ///     let token = token?;
    ///     let logprob = token.logprobs.map(|logprobs| logprobs.token.logprob);
    ///     println!("{:5} {:?} {logprob:?}", token.id, token.text);
    /// }
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn tokens(&mut self) -> GeneratedTokens<'_, 'a> {
        GeneratedTokens::new(self)
    }

    /// Generates the rest of the text and returns it.
    ///
    /// # Errors
    /// The first error of the iterator.
    pub fn into_text(self) -> Result<String> {
        self.collect()
    }

    /// Adds text that an iterator over the tokens has not returned. The next text starts with it.
    pub(super) fn leave(&mut self, text: &str) {
        self.leftover += text;
    }

    pub(super) fn take_leftover(&mut self) -> String {
        mem::take(&mut self.leftover)
    }

    pub(super) fn is_done(&self) -> bool {
        self.text.is_done()
    }

    /// Returns whether some text of the generated tokens is held back.
    pub(super) fn holds_back_text(&self) -> bool {
        self.text.holds_back_text()
    }

    /// Generates one token, and returns the text that is certain now, which may be empty. An error
    /// ends the text.
    pub(super) fn advance(&mut self) -> Result<String> {
        let started = Instant::now();
        let piece = self.next_piece();
        self.text.summary.decode += started.elapsed();
        piece.inspect_err(|_| self.text.end(StopReason::Error))
    }

    fn next_piece(&mut self) -> Result<String> {
        let Self { steps, state, text, .. } = self;
        let has_room = match *state {
            GenerationState::Token(token) => steps.has_room(token)?,
            GenerationState::Prompt | GenerationState::Logits => true,
        };
        if let Some(rest) = text.end_if_due(has_room) {
            return Ok(rest);
        }
        let id = match *state {
            GenerationState::Token(token) => steps.next_after(token, text)?,
            GenerationState::Prompt | GenerationState::Logits => text.sample(steps.decoder.logits_mut())?,
        };
        *state = GenerationState::Token(id);
        text.push(id)
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.prefill(|_, _| true) {
            return Some(Err(error));
        }
        if !self.leftover.is_empty() {
            return Some(Ok(self.take_leftover()));
        }
        while !self.text.is_done() {
            let piece = self.advance();
            if !matches!(&piece, Ok(text) if text.is_empty()) {
                return Some(piece);
            }
        }
        None
    }
}

impl FusedIterator for Generation<'_> {}

impl fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, prompt, text, .. } = self;
        f.debug_struct("Generation")
            .field("sequence", &steps.sequence)
            .field("prompt", &prompt.ids)
            .field("generated", &text.ids())
            .field("summary", &text.summary)
            .finish_non_exhaustive()
    }
}
