//! What is asked of a sampler.

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// How the next token is chosen. The defaults are llama.cpp's; [`SamplerOptions::greedy`] draws nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits before the draw; 0 is greedy, 1 leaves the model's distribution. At least 0; default 0.8.
    pub temperature: f32,
    /// Lets the temperature follow how sure the model is. `None`, the default, leaves it as it is.
    pub dynamic_temperature: Option<DynamicTemperature>,
    /// Keeps this many of the most probable tokens; 0 keeps all. Default 40.
    pub top_k: usize,
    /// Keeps the most typical tokens with at least this much probability together; 1 keeps all. From 0 (the most typical
    /// alone) to 1; default 1.
    pub typical_p: f32,
    /// Keeps the fewest most probable tokens with at least this much probability together; 1 keeps all.
    /// From 0 (the best alone) to 1; default 0.95.
    pub top_p: f32,
    /// Keeps the tokens at least this many times as probable as the best one; 0 keeps all. From 0 to 1; default 0.05.
    pub min_p: f32,
    /// Now and then leaves the most probable tokens out. `None`, the default, never does.
    pub xtc: Option<Xtc>,
    /// Truncates by how surprising the text is to be, in place of top-k, typical-p, top-p, min-p and XTC, which then do not
    /// count. `None` is the default.
    pub mirostat: Option<Mirostat>,
    /// Divides the positive and multiplies the negative logits of tokens in the window; 1 is none. Above 0; default 1.
    pub repetition_penalty: f32,
    /// Is taken from a token's logit for each time it is in the window; 0 is none. Default 0.
    pub frequency_penalty: f32,
    /// Is taken from a token's logit where it is in the window at all; 0 is none. Default 0.
    pub presence_penalty: f32,
    /// How many of the last ids the three penalties look at; `usize::MAX` for all. Default 64.
    pub penalty_window: usize,
    /// Penalises tokens that would repeat a passage. `None`, the default, does not.
    pub dry: Option<Dry>,
    /// Added to the logits of these token ids; negative infinity forbids the token. Default empty.
    pub logit_bias: Vec<(u32, f32)>,
    /// Where the random draws start: the same seed gives the same ids. `None`, the default, takes a new one each time,
    /// which [`Sampler::seed`](super::Sampler::seed) tells.
    pub seed: Option<u64>,
}

/// A temperature from `temperature - range` (0 at least) to `temperature + range`: the higher, the less sure the model is.
/// With the entropy `H` of the `n` tokens that are left, it lies `(H / ln n)^exponent` of the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicTemperature {
    /// Above 0.
    pub range: f32,
    /// Above 0; 1 is usual.
    pub exponent: f32,
}

/// Exclude top choices: with this `probability`, of the tokens that are at least `threshold` probable all but the least
/// probable are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// From 0 to 1; 0.5 is usual.
    pub probability: f32,
    /// Above 0, up to 0.5: with more, no two tokens can reach it. 0.1 is usual.
    pub threshold: f32,
}

/// Mirostat ([Basu et al. 2020](https://arxiv.org/abs/2007.14966)): a truncation that is moved after each token so that the
/// text stays about as surprising as `tau`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// How it truncates.
    pub version: MirostatVersion,
    /// The surprise to keep to, in bits a token. Above 0; 5 is usual.
    pub tau: f32,
    /// How fast it is kept to. Above 0; 0.1 is usual.
    pub eta: f32,
}

/// How Mirostat truncates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirostatVersion {
    /// To the `k` most probable tokens, by a Zipf exponent that is estimated from the 100 most probable.
    One,
    /// To the tokens that are no more surprising than the bound.
    Two,
}

/// DRY, "don't repeat yourself" ([p-e-w 2024](https://github.com/oobabooga/text-generation-webui/pull/5677)): where the text
/// ends as it did before, for `n` tokens, the token that followed then loses `multiplier * base^(n - allowed_length)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// Above 0; 0.8 is usual.
    pub multiplier: f32,
    /// At least 1; 1.75 is usual.
    pub base: f32,
    /// The longest repetition that costs nothing, in tokens. At least 1; 2 is usual.
    pub allowed_length: usize,
    /// How many of the last ids it looks at; `usize::MAX` for all.
    pub window: usize,
    /// Tokens that no repetition goes across; [`Tokenizer::tokens_with`] finds those that have a text in them.
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
        }
    }
}

impl SamplerOptions {
    /// The most probable token every time.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks every option's range, and the ids against the vocabulary.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the first option out of its range (NaN always is).
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

    /// How many of the largest logits tokens are chosen by, where no others matter.
    pub(crate) fn looks_at(&self) -> Option<usize> {
        let count = if self.temperature == 0.0 { 1 } else { self.top_k };
        let all = self.has_penalties()
            || self.dry.is_some()
            || !self.logit_bias.is_empty()
            || self.mirostat.is_some() && self.temperature > 0.0;
        (count > 0 && !all).then_some(count)
    }

    pub(super) fn has_penalties(&self) -> bool {
        self.penalty_window > 0
            && (self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0)
    }
}

impl Dry {
    /// The usual settings: over all ids, with the tokens as breakers that have a line break, a colon, a quotation mark or an
    /// asterisk in them.
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
    Err(Error::argument(name, format!("token {id} is not in the vocabulary of {vocab_size}")))
}
