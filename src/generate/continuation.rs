//! Chooses the tokens of a text, and decides when the text ends.

use super::{GenerateOptions, PlacedPrompt, SpeculationSummary, StopHandle, StopReason, Summary, stop::StopStrings};
use crate::{
    Result,
    backend::MAX_TOP_LOGITS,
    sampler::{Candidate, LogitsProcessor, Logprobs, Sampler},
    tokenizer::{TextStream, Tokenizer},
};

/// A text that is being generated: its sampler, decoded text and stop conditions. The caller runs
/// the steps and owns the sequence.
pub(super) struct Continuation {
    sampler: Sampler,
    tokenizer: Tokenizer,
    stream: TextStream,
    stops: StopStrings,
    max_tokens: usize,
    handles: Vec<StopHandle>,
    ids: Vec<u32>,
    /// Number of most probable tokens to keep for each token; `None` keeps no log-probabilities.
    top_logprobs: Option<usize>,
    logprobs: Vec<Logprobs>,
    /// Scratch for choosing from the largest logits.
    row: Vec<f32>,
    /// Whether the text goes on after end-of-generation tokens.
    past_the_end: bool,
    done: bool,
    pub summary: Summary,
}

impl Continuation {
    pub fn new(
        prompt: &PlacedPrompt,
        tokenizer: &Tokenizer,
        options: &GenerateOptions,
        vocab_size: usize,
    ) -> Result<Self> {
        let mut sampler = Sampler::new(&options.sampler, vocab_size)?;
        #[cfg(feature = "constrained")]
        if let Some(grammar) = &options.grammar {
            sampler = sampler.with_constraint(grammar.constraint(vocab_size)?);
        }
        prompt.text_ids().try_for_each(|id| sampler.accept(id))?;
        let summary = Summary {
            stop: StopReason::Caller,
            seed: sampler.seed(),
            prompt_tokens: prompt.ids.len(),
            cached_tokens: 0,
            generated_tokens: 0,
            prefill: Default::default(),
            decode: Default::default(),
            speculation: SpeculationSummary::default(),
        };
        Ok(Self {
            sampler,
            tokenizer: tokenizer.clone(),
            stream: tokenizer.stream(),
            stops: StopStrings::new(&options.stop)?,
            max_tokens: options.max_tokens.unwrap_or(usize::MAX),
            handles: vec![StopHandle::new()],
            ids: vec![],
            top_logprobs: options.logprobs,
            logprobs: vec![],
            row: vec![],
            past_the_end: false,
            done: false,
            summary,
        })
    }

    pub fn with_processor(self, processor: impl LogitsProcessor + 'static) -> Self {
        Self { sampler: self.sampler.with_processor(processor), ..self }
    }

    #[cfg(feature = "constrained")]
    pub fn with_constraint(self, constraint: impl LogitsProcessor + 'static) -> Self {
        Self { sampler: self.sampler.with_constraint(constraint), ..self }
    }

    pub fn showing(self, ids: impl IntoIterator<Item = u32>) -> Self {
        Self { stream: self.stream.showing(ids), ..self }
    }

    pub fn past_the_end(self) -> Self {
        Self { past_the_end: true, ..self }
    }

    /// Replaces the stop handles; each of them stops the text.
    pub fn with_stop_handles(self, handles: Vec<StopHandle>) -> Self {
        Self { handles, ..self }
    }

    pub fn stop_handles(&self) -> &[StopHandle] {
        &self.handles
    }

    pub fn is_stopped(&self) -> bool {
        self.handles.iter().any(StopHandle::is_stopped)
    }

    /// Returns the ids generated so far.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub fn logprobs(&self) -> &[Logprobs] {
        &self.logprobs
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Ends the text before its next token if it was stopped or has reached a limit, and returns
    /// the text that was held back. `has_room`: whether the context has room for another step.
    pub fn end_if_due(&mut self, has_room: bool) -> Option<String> {
        let reason = if self.is_stopped() {
            StopReason::Caller
        } else if self.ids.len() >= self.max_tokens {
            StopReason::TokenLimit
        } else if !has_room {
            StopReason::ContextEnd
        } else {
            return None;
        };
        Some(self.finish(reason))
    }

    /// Returns whether each token is the most probable one, so that a device can choose it.
    pub fn is_greedy(&self) -> bool {
        self.sampler.required_top_k() == Some(1) && !self.sampler.changes_logits() && self.top_logprobs.is_none()
    }

    /// Returns the number of largest logits that usually determine the choice; `None` if it needs
    /// all of them.
    pub fn top_count(&self) -> Option<usize> {
        let required = self.sampler.required_top_k()?;
        // Candidates can fall behind other tokens when the logits change.
        let required = if self.sampler.changes_logits() { MAX_TOP_LOGITS.max(required) } else { required };
        Some(required.max(self.top_logprobs.unwrap_or(0))).filter(|count| *count <= MAX_TOP_LOGITS)
    }

    /// Chooses the next token by the largest logits, if they determine the choice. `log_sum` is the
    /// logarithm of the sum of the exponentials of all logits.
    pub fn sample_top(&mut self, best: &[Candidate], log_sum: f32) -> Result<Option<u32>> {
        if self.top_count().is_none() {
            return Ok(None);
        }
        let Some(id) = self.sampler.sample_top(best, &mut self.row)? else { return Ok(None) };
        if let Some(n) = self.top_logprobs
            && !self.tokenizer.is_end_of_generation(id)
        {
            self.logprobs.extend(Logprobs::of_best(best, log_sum, id, n));
        }
        Ok(Some(id))
    }

    /// Chooses the next token by the logits of the whole vocabulary.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32> {
        let Some(top) = self.top_logprobs else { return self.sampler.sample(logits) };
        let original = logits.to_vec();
        let id = self.sampler.sample(logits)?;
        if !self.tokenizer.is_end_of_generation(id) {
            self.logprobs.push(Logprobs::new(&original, id, top));
        }
        Ok(id)
    }

    /// Returns the number of tokens that can still be generated.
    pub fn room(&self) -> usize {
        self.max_tokens - self.ids.len()
    }

    /// Shortens drafts of the next tokens to those before the end of the text that the constraint
    /// allows.
    pub fn cut_drafts(&mut self, drafts: &mut Vec<u32>) -> Result<()> {
        let end = drafts.iter().position(|id| self.tokenizer.is_end_of_generation(*id));
        drafts.truncate(end.filter(|_| !self.past_the_end).unwrap_or(drafts.len()));
        self.sampler.cut_drafts(drafts)
    }

    /// Adds a chosen token, and returns the text that is certain now, which may be empty. The token
    /// may end the text.
    pub fn push(&mut self, id: u32) -> Result<String> {
        if self.tokenizer.is_end_of_generation(id) && !self.past_the_end {
            return Ok(self.finish(StopReason::EndOfGeneration(id)));
        }
        let text = self.stream.push(id)?.unwrap_or_default();
        self.ids.push(id);
        self.summary.generated_tokens += 1;
        let (piece, stop) = self.stops.push(&text);
        if let Some(stop) = stop {
            self.end(StopReason::StopString(stop));
        }
        Ok(piece)
    }

    /// Ends the text, and returns the text that was held back.
    fn finish(&mut self, reason: StopReason) -> String {
        self.end(reason);
        self.stops.finish() + &self.stream.finish().unwrap_or_default()
    }

    pub fn end(&mut self, reason: StopReason) {
        self.done = true;
        self.summary.stop = reason;
    }

    /// Returns whether some text of the tokens is held back: an incomplete character, or the
    /// beginning of a stop string.
    pub fn holds_back_text(&self) -> bool {
        self.stream.is_pending() || self.stops.is_pending()
    }

    /// Returns the ids, their log-probabilities and the summary.
    pub fn into_parts(self) -> (Vec<u32>, Vec<Logprobs>, Summary) {
        (self.ids, self.logprobs, self.summary)
    }
}
