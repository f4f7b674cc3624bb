//! One text of several that are generated together: its request and its result.

use std::fmt;

use super::{GenerateOptions, Prompt, StopHandle, Summary};
use crate::sampler::{LogitsProcessor, Logprobs};

/// Asks for one of the texts of [`Runner::generate_many`](crate::Runner::generate_many): a prompt,
/// and options of its own.
///
/// A pair of a prompt and options is one:
///
/// ```
/// use inkstone::{GenerateOptions, GenerateRequest, SamplerOptions};
///
/// let options = GenerateOptions { sampler: SamplerOptions::greedy(), ..Default::default() };
/// let request = GenerateRequest::from(("Once upon a time", &options));
/// let same = GenerateRequest::new("Once upon a time", options);
/// ```
pub struct GenerateRequest<'p> {
    pub(super) prompt: Prompt<'p>,
    pub(super) options: GenerateOptions,
    pub(super) processors: Vec<Box<dyn LogitsProcessor>>,
    pub(super) stop_handles: Vec<StopHandle>,
}

impl<'p> GenerateRequest<'p> {
    /// Asks for a text that goes on from `prompt`.
    pub fn new(prompt: impl Into<Prompt<'p>>, options: GenerateOptions) -> Self {
        Self { prompt: prompt.into(), options, processors: vec![], stop_handles: vec![] }
    }

    /// Adds a stage to the text's sampler; see
    /// [`Generation::with_processor`](crate::Generation::with_processor).
    #[must_use]
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processors.push(Box::new(processor));
        self
    }

    /// Lets this handle stop the text, also before its turn has come. Requests may share a handle,
    /// which then stops them all; of several handles each stops the text.
    #[must_use]
    pub fn with_stop_handle(mut self, handle: StopHandle) -> Self {
        self.stop_handles.push(handle);
        self
    }

    /// Returns a request that borrows nothing.
    pub fn into_owned(self) -> GenerateRequest<'static> {
        let Self { prompt, options, processors, stop_handles } = self;
        GenerateRequest { prompt: prompt.into_owned(), options, processors, stop_handles }
    }
}

impl<'p, P: Into<Prompt<'p>>> From<(P, GenerateOptions)> for GenerateRequest<'p> {
    fn from((prompt, options): (P, GenerateOptions)) -> Self {
        Self::new(prompt, options)
    }
}

impl<'p, P: Into<Prompt<'p>>> From<(P, &GenerateOptions)> for GenerateRequest<'p> {
    fn from((prompt, options): (P, &GenerateOptions)) -> Self {
        Self::new(prompt, options.clone())
    }
}

impl fmt::Debug for GenerateRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prompt, options, processors, .. } = self;
        f.debug_struct("GenerateRequest")
            .field("prompt", prompt)
            .field("options", options)
            .field("processors", &processors.len())
            .finish_non_exhaustive()
    }
}

/// A finished text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Completion {
    /// The text, without the prompt.
    pub text: String,
    /// Its token ids.
    pub ids: Vec<u32>,
    /// The log-probabilities of its tokens before any stage of the sampler; empty where
    /// [`GenerateOptions::logprobs`] did not ask for them.
    pub logprobs: Vec<Logprobs>,
    /// Why it ended and how long it took. The times are those of the steps that it took part in,
    /// most of which served other texts as well.
    pub summary: Summary,
}
