//! The request and the result of one of several texts that are generated together.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    GenerateOptions, PlacedPrompt, Prompt, StopHandle, Summary,
    speculation::{DraftSource, Drafter},
};
use crate::{
    Result,
    sampler::{LogitsProcessor, Logprobs},
};

/// A request for one text of [`Runner::generate_many`](crate::Runner::generate_many).
///
/// A pair of a prompt and options converts into it:
///
/// ```
/// use inkstone::{GenerateOptions, GenerateRequest, SamplerOptions};
///
/// let options = GenerateOptions { sampler: SamplerOptions::greedy(), ..Default::default() };
/// let request = GenerateRequest::from(("Once upon a time", &options));
/// let same = GenerateRequest::new("Once upon a time", options);
/// ```
pub struct GenerateRequest<'p> {
    pub(super) prompt: RequestPrompt<'p>,
    pub(super) options: GenerateOptions,
    pub(super) processors: Vec<Box<dyn LogitsProcessor>>,
    pub(super) drafters: Vec<DraftSource>,
    pub(super) stop_handles: Vec<StopHandle>,
}

/// The prompt of a request, before and after its images have their places.
#[derive(Debug)]
pub(super) enum RequestPrompt<'p> {
    Given(Prompt<'p>),
    Placed(PlacedPrompt),
}

impl<'p> GenerateRequest<'p> {
    /// Returns a request for a continuation of `prompt`.
    pub fn new(prompt: impl Into<Prompt<'p>>, options: GenerateOptions) -> Self {
        let prompt = RequestPrompt::Given(prompt.into());
        Self { prompt, options, processors: vec![], drafters: vec![], stop_handles: vec![] }
    }

    /// Adds a stage to the sampler of this text; see
    /// [`Generation::with_processor`](crate::Generation::with_processor).
    #[must_use]
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processors.push(Box::new(processor));
        self
    }

    /// Adds a drafter of tokens of this text; see
    /// [`Generation::with_drafter`](crate::Generation::with_drafter).
    #[must_use]
    pub fn with_drafter(mut self, drafter: impl Drafter + 'static) -> Self {
        self.drafters.push(DraftSource::new(drafter));
        self
    }

    /// Adds a handle that stops this text, even before it has started. Requests can share a handle.
    /// If there are several handles, each of them stops the text.
    #[must_use]
    pub fn with_stop_handle(mut self, handle: StopHandle) -> Self {
        self.stop_handles.push(handle);
        self
    }

    /// Returns a request with owned data.
    pub fn into_owned(self) -> GenerateRequest<'static> {
        let Self { prompt, options, processors, drafters, stop_handles } = self;
        let prompt = match prompt {
            RequestPrompt::Given(prompt) => RequestPrompt::Given(prompt.into_owned()),
            RequestPrompt::Placed(prompt) => RequestPrompt::Placed(prompt),
        };
        GenerateRequest { prompt, options, processors, drafters, stop_handles }
    }

    /// Gives the images of the prompt their places, unless they have them.
    ///
    /// # Errors
    /// As `place`.
    pub(crate) fn place(self, place: impl FnOnce(Prompt<'p>) -> Result<PlacedPrompt>) -> Result<Self> {
        let RequestPrompt::Given(prompt) = self.prompt else { return Ok(self) };
        Ok(Self { prompt: RequestPrompt::Placed(place(prompt)?), ..self })
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
        let Self { prompt, options, processors, drafters, .. } = self;
        f.debug_struct("GenerateRequest")
            .field("prompt", prompt)
            .field("options", options)
            .field("processors", &processors.len())
            .field("drafters", &drafters.len())
            .finish_non_exhaustive()
    }
}

/// A finished text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Completion {
    /// The text, without the prompt.
    pub text: String,
    /// The token ids of the text.
    pub ids: Vec<u32>,
    /// The model's log-probabilities of `ids`, before sampling; empty unless
    /// [`GenerateOptions::logprobs`] is set.
    pub logprobs: Vec<Logprobs>,
    /// Statistics of the text. Its times are the times of whole steps, during which
    /// other texts were generated, too.
    pub summary: Summary,
}
