//! The options of a sampler.

use crate::{
    error::{Error, Result},
    tokenizer::Tokenizer,
};

/// The options for choosing tokens. The defaults are llama.cpp's. [`SamplerOptions::greedy`] always
/// takes the most probable token.
///
/// Options are added in later versions, so end a literal with the defaults:
///
/// ```
/// use inkstone::SamplerOptions;
///
/// let options = SamplerOptions { temperature: 0.6, top_k: 20, ..Default::default() };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// The divisor of the logits before the draw; 0 is greedy, 1 keeps the model's distribution. At
    /// least 0; default 0.8.
    pub temperature: f32,
    /// Adapts the temperature to the entropy of the candidates. Default `None`: a constant
    /// temperature.
    pub dynamic_temperature: Option<DynamicTemperature>,
    /// The number of most probable tokens to keep; 0 keeps all. Default 40.
    pub top_k: usize,
    /// The total probability of the most typical tokens to keep, from 0 (only the most typical one)
    /// to 1 (all); default 1.
    pub typical_p: f32,
    /// The total probability of the most probable tokens to keep, from 0 (only the most probable
    /// one) to 1 (all); default 0.95.
    pub top_p: f32,
    /// The smallest probability to keep, relative to the most probable token, from 0 (all) to 1;
    /// default 0.05.
    pub min_p: f32,
    /// Sometimes excludes the most probable tokens. Default `None`: never.
    pub xtc: Option<Xtc>,
    /// Keeps the surprise of the text constant, instead of top-k, typical-p, top-p, min-p and XTC,
    /// which are then ignored. Default `None`: off.
    pub mirostat: Option<Mirostat>,
    /// The divisor of positive and the factor of negative logits of tokens in the window; 1 is off.
    /// Above 0; default 1.
    pub repetition_penalty: f32,
    /// The amount subtracted from a token's logit for each occurrence in the window. Default 0:
    /// off.
    pub frequency_penalty: f32,
    /// The amount subtracted from a token's logit if it occurs in the window. Default 0: off.
    pub presence_penalty: f32,
    /// The number of last ids to which the three penalties apply; `usize::MAX` for all. Default 64.
    pub penalty_window: usize,
    /// Penalizes tokens that would continue a repeated passage. Default `None`: off.
    pub dry: Option<Dry>,
    /// Token ids and the amounts added to their logits; negative infinity forbids a token. Default
    /// empty.
    pub logit_bias: Vec<(u32, f32)>,
    /// The seed of the random draws; the same seed gives the same ids. Default `None`: a random
    /// seed, which [`Sampler::seed`](super::Sampler::seed) returns.
    pub seed: Option<u64>,
    #[doc(hidden)]
    pub non_exhaustive: (),
}

/// A temperature between `temperature - range` (at least 0) and `temperature + range`. Its position
/// in that interval is `(H / ln n)^exponent`, with the entropy `H` of the `n` remaining tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicTemperature {
    /// The largest change of the temperature; above 0.
    pub range: f32,
    /// The exponent of the relative entropy; above 0, usually 1.
    pub exponent: f32,
}

/// Exclude top choices: with `probability`, all tokens that are at least `threshold` probable are
/// excluded, except for the least probable of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// The probability of an exclusion for each token; from 0 to 1, usually 0.5.
    pub probability: f32,
    /// The smallest probability of an excluded token; above 0, at most 0.5 (two tokens cannot both
    /// exceed that), usually 0.1.
    pub threshold: f32,
}

/// Mirostat ([Basu et al. 2020](https://arxiv.org/abs/2007.14966)): a truncation that is adjusted
/// after each token, so that the average surprise of the text stays near `tau`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// The version of the algorithm.
    pub version: MirostatVersion,
    /// The target surprise in bits per token; above 0, usually 5.
    pub tau: f32,
    /// The learning rate; above 0, usually 0.1.
    pub eta: f32,
}

/// The version of Mirostat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirostatVersion {
    /// Keeps the `k` most probable tokens; `k` follows from a Zipf exponent, which is estimated
    /// from the 100 most probable tokens.
    One,
    /// Keeps the tokens with a surprise below the bound.
    Two,
}

/// DRY, "don't repeat yourself" ([p-e-w
/// 2024](https://github.com/oobabooga/text-generation-webui/pull/5677)): if the last `n` tokens
/// occurred earlier, the logit of the token that followed them then is lowered by
/// `multiplier * base^(n - allowed_length)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// The penalty of a repetition of `allowed_length` tokens; above 0, usually 0.8.
    pub multiplier: f32,
    /// The factor for each further token; at least 1, usually 1.75.
    pub base: f32,
    /// The length in tokens from which a repetition is penalized; at least 1, usually 2.
    pub allowed_length: usize,
    /// The number of last ids that are searched for repetitions; `usize::MAX` for all.
    pub window: usize,
    /// Tokens at which repetitions end; [`Tokenizer::tokens_with`] finds tokens that contain a
    /// text.
    pub breakers: Vec<u32>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            dynamic_temperature: None,
            top_k: 40,
            typical_p: 1.0,
            top_p: 0.95,
            min_p: 0.05,
            xtc: None,
            mirostat: None,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window: 64,
            dry: None,
            logit_bias: Vec::new(),
            seed: None,
            non_exhaustive: (),
        }
    }
}

impl SamplerOptions {
    /// Returns options that always choose the most probable token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks that every option is in its range, and every id in the vocabulary.
    ///
    /// # Errors
    /// [`Error::Argument`] with the first option that is out of its range; NaN always is.
    pub fn check(&self, vocab_size: usize) -> Result<()> {
        in_range("temperature", self.temperature, "0 or more", |t| t >= 0.0)?;
        in_range("typical_p", self.typical_p, "from 0 to 1", |p| (0.0..=1.0).contains(&p))?;
        in_range("top_p", self.top_p, "from 0 to 1", |p| (0.0..=1.0).contains(&p))?;
        in_range("min_p", self.min_p, "from 0 to 1", |p| (0.0..=1.0).contains(&p))?;
        in_range("repetition_penalty", self.repetition_penalty, "more than 0", |r| r > 0.0)?;
        in_range("frequency_penalty", self.frequency_penalty, "finite", |_| true)?;
        in_range("presence_penalty", self.presence_penalty, "finite", |_| true)?;
        if let Some(dynamic) = self.dynamic_temperature {
            in_range("dynamic_temperature.range", dynamic.range, "more than 0", |r| r > 0.0)?;
            in_range("dynamic_temperature.exponent", dynamic.exponent, "more than 0", |e| e > 0.0)?;
        }
        if let Some(xtc) = self.xtc {
            in_range("xtc.probability", xtc.probability, "from 0 to 1", |p| (0.0..=1.0).contains(&p))?;
            in_range("xtc.threshold", xtc.threshold, "more than 0, up to 0.5", |t| t > 0.0 && t <= 0.5)?;
        }
        if let Some(mirostat) = self.mirostat {
            in_range("mirostat.tau", mirostat.tau, "more than 0", |t| t > 0.0)?;
            in_range("mirostat.eta", mirostat.eta, "more than 0", |e| e > 0.0)?;
        }
        if let Some(dry) = &self.dry {
            dry.check(vocab_size)?;
        }
        for &(id, bias) in &self.logit_bias {
            check_id("logit_bias", id, vocab_size)?;
            if bias.is_nan() || bias == f32::INFINITY {
                let what = format!("is {bias} for token {id}, but must be finite, or negative infinity to forbid it");
                return Err(Error::argument("logit_bias", what));
            }
        }
        Ok(())
    }

    /// Returns the number of largest logits that determine the draw, or `None` if it needs all of
    /// them.
    pub(super) fn required_top_k(&self) -> Option<usize> {
        let count = if self.temperature == 0.0 { 1 } else { self.top_k };
        let needs_all = self.mirostat.is_some() && self.temperature > 0.0;
        (count > 0 && !needs_all).then_some(count)
    }

    /// Returns whether a bias or a penalty may change the logits.
    pub(super) fn changes_logits(&self) -> bool {
        self.has_penalties() || self.dry.is_some() || !self.logit_bias.is_empty()
    }

    pub(super) fn has_penalties(&self) -> bool {
        self.penalty_window > 0
            && (self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0)
    }
}

impl Dry {
    /// Returns the usual settings: over all ids, with breakers that contain a line break, a colon,
    /// a quotation mark or an asterisk.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let breakers = tokenizer.tokens_with(&["\n", ":", "\"", "*"]);
        Self { multiplier: 0.8, base: 1.75, allowed_length: 2, window: usize::MAX, breakers }
    }

    fn check(&self, vocab_size: usize) -> Result<()> {
        in_range("dry.multiplier", self.multiplier, "more than 0", |m| m > 0.0)?;
        in_range("dry.base", self.base, "1 or more", |b| b >= 1.0)?;
        if self.allowed_length == 0 {
            return Err(Error::argument("dry.allowed_length", "is 0, but must be at least 1"));
        }
        self.breakers.iter().try_for_each(|&id| check_id("dry.breakers", id, vocab_size))
    }
}

fn in_range(name: &'static str, value: f32, range: &str, holds: impl Fn(f32) -> bool) -> Result<()> {
    if value.is_finite() && holds(value) {
        return Ok(());
    }
    Err(Error::argument(name, format!("is {value}, but must be {range}")))
}

pub(super) fn check_id(name: &'static str, id: u32, vocab_size: usize) -> Result<()> {
    if (id as usize) < vocab_size {
        return Ok(());
    }
    Err(Error::argument(name, format!("has the token {id}, but the vocabulary has {vocab_size} tokens")))
}
