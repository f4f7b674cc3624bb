//! Generates the continuation of a prompt: the decode loop.
//!
//! A [`Decoder`] runs steps over sequences of token ids, and returns logits. A [`Generation`] adds
//! the sampler and the stop conditions, and returns text. Prefill, decode and several sequences at
//! once are the same call with a ragged batch, so that one place keeps the cache and its tokens
//! consistent.

mod choice;
mod continuation;
mod decoder;
mod generation;
mod many;
mod prompt;
mod request;
mod speculation;
mod statistics;
mod stop;
mod tokens;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::{
    decoder::{
        Decoder, EncodeImages, ImageRows, Limits, LogitsFor, MtpHead, PlacedImage, PlacedPrompt, Prefill, PromptImages,
    },
    generation::Generation,
    many::generate_many,
    prompt::{EncodedPart, Prompt, PromptPart},
    request::{Completion, GenerateRequest},
    speculation::{Drafter, Speculation, SpeculationSummary},
    statistics::Statistics,
    stop::{StopHandle, StopReason},
    tokens::{GeneratedToken, GeneratedTokens},
};
#[cfg(feature = "constrained")]
use crate::grammar::Grammar;
use crate::sampler::SamplerOptions;

/// The options for generating a text.
///
/// Options are added in later versions, so end a literal with the defaults:
///
/// ```
/// use inkstone::{GenerateOptions, SamplerOptions};
///
/// let options = GenerateOptions {
///     sampler: SamplerOptions { temperature: 0.6, seed: Some(7), ..Default::default() },
///     max_tokens: Some(200),
///     stop: vec!["\n\n".into()],
///     ..Default::default()
/// };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// The options for choosing tokens.
    pub sampler: SamplerOptions,
    /// The largest number of tokens to generate, at which the text ends with
    /// [`StopReason::TokenLimit`]. Default 1024. With `None`, the model or the end of the context
    /// ends the text; a base model may write until the context is full.
    pub max_tokens: Option<usize>,
    /// Keeps the log-probability of each token, and of this number of most probable tokens at its
    /// position, for [`Generation::logprobs`]. Default `None`: keeps none.
    pub logprobs: Option<usize>,
    /// Constrains the text; in an answer, the text after the reasoning. Default `None`: no
    /// constraint.
    #[cfg(feature = "constrained")]
    pub grammar: Option<Grammar>,
    /// Strings that end the text, and are not part of it. Default: none.
    pub stop: Vec<String>,
    /// The number of tokens to draft, which changes the speed and not the text. Default: as many as
    /// make the text fastest.
    pub speculation: Speculation,
    /// Separates users of one model: the tokens of a text are only found in the cache by texts with
    /// the same salt, so that the time of a prompt tells nothing about the texts of others. A salt
    /// can be any string, such as a secret of each user. Calls without options, such as
    /// [`Runner::score`](crate::Runner::score), use the salt of the runner's last text. Default
    /// `None`, which is as a salt of its own.
    pub cache_salt: Option<String>,
    /// The place of the request among those of other threads, which changes its time and not the
    /// text: when steps have no room for the prompts of all, and when the cache is full. A request
    /// comes before those with a lower priority, except that each level counts as much as 10
    /// seconds of waiting. [`Runner::generate_many`](crate::Runner::generate_many) has the highest
    /// priority of its requests. Default 0.
    pub priority: i8,
    #[doc(hidden)]
    pub non_exhaustive: (),
}

/// The default of [`GenerateOptions::max_tokens`].
const DEFAULT_MAX_TOKENS: usize = 1024;

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            sampler: SamplerOptions::default(),
            max_tokens: Some(DEFAULT_MAX_TOKENS),
            logprobs: None,
            #[cfg(feature = "constrained")]
            grammar: None,
            stop: vec![],
            speculation: Speculation::Auto,
            cache_salt: None,
            priority: 0,
            non_exhaustive: (),
        }
    }
}

/// Statistics of a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// The reason why the text ended; [`StopReason::Caller`] before it has ended.
    pub stop: StopReason,
    /// The seed of the sampler; the same seed gives the same text again.
    pub seed: u64,
    /// Number of tokens in the prompt.
    pub prompt_tokens: usize,
    /// Number of tokens at the start of the prompt that were in the cache, from this or another
    /// text, and not computed again.
    pub cached_tokens: usize,
    /// Number of generated tokens, without an end-of-generation token.
    pub generated_tokens: usize,
    /// Time for computing the prompt.
    pub prefill: Duration,
    /// Time for generating tokens, without the time that the caller spent between them.
    pub decode: Duration,
    /// Statistics of drafted tokens.
    pub speculation: SpeculationSummary,
}

impl Summary {
    /// Returns the number of computed prompt tokens per second; 0 if there were none.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens - self.cached_tokens, self.prefill)
    }

    /// Returns the number of generated tokens per second; 0 if there were none.
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.generated_tokens, self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}
