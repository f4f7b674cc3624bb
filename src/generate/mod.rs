//! From a prompt to its continuation: the decode loop.
//!
//! In: token ids, and an executable with its cache. Out: logits from the [`Decoder`], which knows sequences and steps;
//! text from a [`Generation`], which adds what chooses tokens and what ends them. Prefill, decode and several sequences at
//! once are the same call, a ragged batch, so there is one loop and one place that keeps the cache and the tokens in
//! it together.

mod continuation;
mod decoder;
mod generation;
mod many;
mod prompt;
mod request;
mod stop;

use std::time::Duration;

pub use decoder::{Decoder, Limits, Prefill, Wanted};
pub use generation::Generation;
pub use many::generate_many;
pub use prompt::Prompt;
pub use request::{Completion, GenerateRequest};
pub use stop::{StopHandle, StopReason};

#[cfg(feature = "constrained")]
use crate::grammar::Grammar;
use crate::sampler::SamplerOptions;

/// How a text is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// How each token is chosen.
    pub sampler: SamplerOptions,
    /// The most tokens to generate, by default 1024; a text of that length ends with
    /// [`StopReason::TokenLimit`]. `None` leaves the end to the model and the context's length: a
    /// base model may write until the context is full.
    pub max_tokens: Option<usize>,
    /// With how many of the most probable tokens the probability of each token is to be kept, for
    /// [`Generation::logprobs`]; `None`, the default, keeps none. 0 keeps the tokens' own.
    pub logprobs: Option<usize>,
    /// The form that the text must have, of an answer what comes after its thoughts. `None`, the default, leaves it free.
    #[cfg(feature = "constrained")]
    pub grammar: Option<Grammar>,
    /// Strings that end the text where they come up, and are not part of it. None by default.
    pub stop: Vec<String>,
}

/// The most tokens of a text where its caller does not say.
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
        }
    }
}

/// How a generation went.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Why it ended; [`StopReason::Caller`] while it has not.
    pub stop: StopReason,
    /// The seed that the tokens were chosen with: the same one gives the same text again.
    pub seed: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them, at the start, were in the cache already and cost nothing.
    pub cached_tokens: usize,
    /// Tokens generated; the one that ended the text is not among them.
    pub generated_tokens: usize,
    /// Time spent on the prompt.
    pub prefill: Duration,
    /// Time spent on the generated tokens; what the caller did between them does not count.
    pub decode: Duration,
}

impl Summary {
    /// Tokens of the prompt computed a second; 0 where there were none.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens - self.cached_tokens, self.prefill)
    }

    /// Tokens generated a second; 0 where there were none.
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.generated_tokens, self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}
