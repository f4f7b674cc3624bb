//! A text in the making, as an iterator over its pieces.

use std::{fmt, iter::FusedIterator, time::Instant};

use super::{Decoder, GenerateOptions, StopHandle, StopReason, Summary, Wanted, stop::StopStrings};
use crate::{
    Result,
    kv_cache::SequenceId,
    sampler::{LogitsProcessor, Logprobs, Sampler},
    tokenizer::{TextStream, Tokenizer},
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
    sampler: Sampler,
    tokenizer: Tokenizer,
    text: TextStream,
    stops: StopStrings,
    max_tokens: usize,
    handle: StopHandle,
    state: State,
    generated: Vec<u32>,
    /// How many of the most probable tokens are kept with each, where they are.
    keeps: Option<usize>,
    logprobs: Vec<Logprobs>,
    summary: Summary,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// The prompt is yet to be computed.
    Prompt,
    /// The decoder has the logits of the next token.
    Logits,
    /// This token was given out and is not in the cache.
    Token(u32),
    Done,
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
        let mut sampler = Sampler::new(&options.sampler, decoder.limits().vocab_size)?;
        #[cfg(feature = "constrained")]
        if let Some(grammar) = &options.grammar {
            sampler = sampler.with_form(grammar.constraint(decoder.limits().vocab_size)?);
        }
        prompt.iter().try_for_each(|&id| sampler.accept(id))?;
        let summary = Summary {
            stop: StopReason::Caller,
            seed: sampler.seed(),
            prompt_tokens: prompt.len(),
            cached_tokens: 0,
            generated_tokens: 0,
            prefill: Default::default(),
            decode: Default::default(),
        };
        Ok(Self {
            decoder,
            sequence,
            prompt,
            sampler,
            tokenizer: tokenizer.clone(),
            text: tokenizer.stream(),
            stops: StopStrings::new(&options.stop)?,
            max_tokens: options.max_tokens.unwrap_or(usize::MAX),
            handle: StopHandle::new(),
            state: State::Prompt,
            generated: vec![],
            keeps: options.logprobs,
            logprobs: vec![],
            summary,
        })
    }

    /// Adds a stage to the sampler, after those added already and before all others. It is given the ids of the prompt, too.
    #[must_use]
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.sampler = self.sampler.with_processor(processor);
        self
    }

    /// Keeps what is generated to a form.
    #[cfg(feature = "constrained")]
    pub(crate) fn with_form(mut self, form: impl LogitsProcessor + 'static) -> Self {
        self.sampler = self.sampler.with_form(form);
        self
    }

    /// Gives the names of these control tokens too, which are otherwise no part of the text.
    #[must_use]
    pub fn showing(mut self, ids: impl IntoIterator<Item = u32>) -> Self {
        self.text = self.text.showing(ids);
        self
    }

    /// Lets this handle stop the generation, in the place of its own.
    #[must_use]
    pub fn with_stop_handle(mut self, handle: StopHandle) -> Self {
        self.handle = handle;
        self
    }

    /// A handle that stops this generation from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        self.handle.clone()
    }

    /// The ids of the prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// The ids generated so far.
    pub fn ids(&self) -> &[u32] {
        &self.generated
    }

    /// How probable the model found each of [`ids`](Self::ids), before any stage of the sampler; empty where
    /// [`GenerateOptions::logprobs`] did not ask for it.
    pub fn logprobs(&self) -> &[Logprobs] {
        &self.logprobs
    }

    /// How it went; complete once the iterator has ended.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Computes the prompt now, unless that was done. `progress` is told how many of its tokens are done and how many
    /// there are, before each chunk and at the end; where it returns false the generation ends.
    ///
    /// # Errors
    /// Whatever the device reports; the generation has then ended.
    pub fn prefill(&mut self, mut progress: impl FnMut(usize, usize) -> bool) -> Result<()> {
        if self.state != State::Prompt {
            return Ok(());
        }
        let started = Instant::now();
        let handle = self.handle.clone();
        let progress = |done, total| !handle.is_stopped() && progress(done, total);
        let result = self.decoder.prefill(self.sequence, &self.prompt, progress);
        self.summary.prefill = started.elapsed();
        let prefill = result.inspect_err(|_| self.end(StopReason::Error))?;
        self.summary.cached_tokens = prefill.cached;
        if prefill.complete {
            self.state = State::Logits;
        } else {
            self.end(StopReason::Caller);
        }
        Ok(())
    }

    /// One token on. Returns the text that this settles, which may be none.
    fn advance(&mut self) -> Result<String> {
        if self.handle.is_stopped() {
            return Ok(self.finish(StopReason::Caller));
        }
        if self.generated.len() >= self.max_tokens {
            return Ok(self.finish(StopReason::TokenLimit));
        }
        let held = self.decoder.tokens(self.sequence)?.len();
        if matches!(self.state, State::Token(_)) && held >= self.decoder.context_length() {
            return Ok(self.finish(StopReason::ContextEnd));
        }
        let id = self.choose()?;
        if self.tokenizer.is_end_of_generation(id) {
            return Ok(self.finish(StopReason::EndOfGeneration(id)));
        }
        let text = self.text.push(id)?.unwrap_or_default();
        self.state = State::Token(id);
        self.generated.push(id);
        self.summary.generated_tokens += 1;
        let (piece, stop) = self.stops.push(&text);
        if let Some(stop) = stop {
            self.end(StopReason::StopString(stop));
        }
        Ok(piece)
    }

    /// The next token.
    fn choose(&mut self) -> Result<u32> {
        let State::Token(id) = self.state else { return self.sample() };
        match self.sampler.looks_at().filter(|_| self.keeps.is_none()) {
            Some(1) => return self.decoder.greedy(self.sequence, id),
            Some(count) => {
                if let Some(best) = self.decoder.best(self.sequence, id, count)? {
                    return self.sampler.sample_best(best.iter().map(|token| (token.id, token.logit)));
                }
            }
            None => {
                self.decoder.step(&[(self.sequence, &[id], Wanted::Last)])?;
            }
        }
        self.sample()
    }

    /// The next token, by all logits.
    fn sample(&mut self) -> Result<u32> {
        let logits = self.decoder.logits();
        let Some(top) = self.keeps else { return self.sampler.sample(logits) };
        let before = logits.to_vec();
        let id = self.sampler.sample(logits)?;
        if !self.tokenizer.is_end_of_generation(id) {
            self.logprobs.push(Logprobs::new(&before, id, top));
        }
        Ok(id)
    }

    /// Ends the text, and returns what was held back of it.
    fn finish(&mut self, reason: StopReason) -> String {
        self.end(reason);
        self.stops.finish() + &self.text.finish().unwrap_or_default()
    }

    fn end(&mut self, reason: StopReason) {
        self.state = State::Done;
        self.summary.stop = reason;
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
        while self.state != State::Done && matches!(&piece, Ok(text) if text.is_empty()) {
            piece = self.advance();
        }
        self.summary.decode += started.elapsed();
        if piece.is_err() {
            self.end(StopReason::Error);
        }
        Some(piece).filter(|piece| !matches!(piece, Ok(text) if text.is_empty()))
    }
}

impl FusedIterator for Generation<'_> {}

impl fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, prompt, generated, summary, .. } = self;
        f.debug_struct("Generation")
            .field("sequence", sequence)
            .field("prompt", prompt)
            .field("generated", generated)
            .field("summary", summary)
            .finish_non_exhaustive()
    }
}
