//! The options for generating text.

use std::collections::BTreeMap;

use inkstone::{GenerateOptions, SamplerOptions};

use crate::{body::TextOr, error::ApiError, limits};

/// The options of a request. Options that a client leaves out are the library's defaults.
#[derive(Default)]
pub struct Sampling {
    /// The temperature.
    pub temperature: Option<f32>,
    /// The total probability of the tokens to keep.
    pub top_p: Option<f32>,
    /// The number of most probable tokens to keep.
    pub top_k: Option<usize>,
    /// The smallest relative probability to keep.
    pub min_p: Option<f32>,
    /// The divisor of the logits of recent tokens.
    pub repetition_penalty: Option<f32>,
    /// The amount subtracted for each occurrence.
    pub frequency_penalty: Option<f32>,
    /// The amount subtracted from tokens that occur.
    pub presence_penalty: Option<f32>,
    /// Amounts added to logits, by token id.
    pub logit_bias: Option<BTreeMap<String, f32>>,
    /// The seed.
    pub seed: Option<i64>,
    /// The salt of the prompt, which separates users in the cache.
    pub cache_salt: Option<String>,
    /// Strings that end the text.
    pub stop: Option<TextOr<String>>,
    /// The largest number of tokens, and the name of the field that limits it.
    pub max_tokens: Option<(usize, &'static str)>,
    /// The number of most probable tokens to return at each position, and the name of the field
    /// that has it.
    pub logprobs: Option<(usize, &'static str)>,
}

/// The bias by which OpenAI's API forbids a token.
const FORBIDDEN: f32 = -100.0;

impl Sampling {
    /// Returns the options of the library.
    ///
    /// # Errors
    /// [`ApiError`] with the field that is out of its range.
    pub fn options(self) -> Result<GenerateOptions, ApiError> {
        let stop = self.stop.map(TextOr::into_vec).unwrap_or_default();
        if stop.len() > limits::STOPS {
            return Err(ApiError::field("stop", &format!("has more than {} strings", limits::STOPS)));
        }
        if let Some((0, name)) = self.max_tokens {
            return Err(ApiError::field(name, "must be at least 1"));
        }
        if let Some((limits::TOO_MANY_LOGPROBS.., name)) = self.logprobs {
            return Err(ApiError::field(name, &format!("must be less than {}", limits::TOO_MANY_LOGPROBS)));
        }
        let default = SamplerOptions::default();
        Ok(GenerateOptions {
            sampler: SamplerOptions {
                temperature: self.temperature.unwrap_or(default.temperature),
                top_p: self.top_p.unwrap_or(default.top_p),
                top_k: self.top_k.unwrap_or(default.top_k),
                min_p: self.min_p.unwrap_or(default.min_p),
                repetition_penalty: self.repetition_penalty.unwrap_or(default.repetition_penalty),
                frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
                presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
                logit_bias: biases(self.logit_bias.unwrap_or_default())?,
                seed: self.seed.map(i64::cast_unsigned),
                ..default
            },
            max_tokens: self.max_tokens.map(|(tokens, _)| tokens),
            logprobs: self.logprobs.map(|(top, _)| top),
            stop,
            cache_salt: self.cache_salt,
            ..GenerateOptions::default()
        })
    }
}

fn biases(by_id: BTreeMap<String, f32>) -> Result<Vec<(u32, f32)>, ApiError> {
    if by_id.len() > limits::BIASES {
        return Err(ApiError::field("logit_bias", &format!("has more than {} tokens", limits::BIASES)));
    }
    let bias = |(id, bias): (String, f32)| {
        let id = id.parse().map_err(|_| ApiError::field("logit_bias", &format!("`{id}` is not a token id")))?;
        Ok((id, if bias <= FORBIDDEN { f32::NEG_INFINITY } else { bias }))
    };
    by_id.into_iter().map(bias).collect()
}
