//! Chooses a token by its logits.
//!
//! The stages run in llama.cpp's order; each is skipped if its option has its neutral value:
//!
//! 1. **The caller's processors** ([`LogitsProcessor`]), in the order in which they were added;
//!    then [`GenerateOptions::grammar`](crate::GenerateOptions), if there is one.
//! 2. **Logit bias**: adds a bias to the logits of the given tokens (negative infinity forbids a
//!    token).
//! 3. **Penalties** over the last `penalty_window` ids of the history (the accepted prompt and the
//!    sampled ids). For a token that occurs `n > 0` times, the logit is divided by
//!    `repetition_penalty` if it is positive and multiplied by it otherwise ([Keskar et al.
//!    2019](https://arxiv.org/abs/1909.05858), as in Hugging Face's
//!    `RepetitionPenaltyLogitsProcessor`), and then lowered by
//!    `n * frequency_penalty + presence_penalty` (as in OpenAI's API).
//! 4. **[DRY](Dry)**: penalizes tokens that would continue a repetition by its length.
//! 5. **Greedy** if `temperature` is 0: the largest logit, the lowest id of equal ones. No random
//!    number is drawn.
//! 6. **[Mirostat]**, after the temperature and instead of all later stages but the draw.
//! 7. **Top-k**: the `top_k` largest logits; of equal ones, the lower ids.
//! 8. **Typical-p** ([Meister et al. 2022](https://arxiv.org/abs/2202.00666)): the tokens with a
//!    surprise nearest to the entropy, until their probabilities among the tokens of top-k sum to
//!    at least `typical_p`.
//! 9. **Top-p** ([Holtzman et al. 2019](https://arxiv.org/abs/1904.09751)): the fewest most
//!    probable tokens with probabilities among the remaining tokens that sum to at least `top_p`.
//! 10. **Min-p** ([Nguyen et al. 2024](https://arxiv.org/abs/2407.01082)): the tokens at least
//!     `min_p` times as probable as the most probable one.
//! 11. **[XTC](Xtc)**: sometimes excludes the most probable tokens.
//! 12. **Temperature**, [dynamic](DynamicTemperature) or constant: one draw from
//!     `softmax(logits / temperature)` of the remaining tokens.
//!
//! The temperature comes last, so that the truncations do not depend on it. A sampler has its own
//! random state and history: use one for each sequence. The same seed gives the same ids.

mod candidates;
mod history;
mod logprobs;
mod mirostat;
mod options;
mod random;
mod top;

use std::fmt;

pub(crate) use self::candidates::{Candidate, largest};
use self::{
    candidates::{Candidates, Truncation},
    history::History,
    mirostat::SurpriseBound,
    options::check_id,
    random::Xoshiro256,
};
pub use self::{
    logprobs::{Logprobs, TokenLogprob},
    options::{Dry, DynamicTemperature, Mirostat, MirostatVersion, SamplerOptions, Xtc},
};
use crate::error::{Error, Result};

/// A stage that a caller adds before all stages of the sampler; it can change the model's logits.
///
/// Closures implement it:
///
/// ```
/// use inkstone::sampler::{Sampler, SamplerOptions};
///
/// let no_twice = |ids: &[u32], logits: &mut [f32]| {
///     if let Some(last) = ids.last() {
///         logits[*last as usize] = f32::NEG_INFINITY;
///     }
///     Ok(())
/// };
/// let mut sampler = Sampler::new(&SamplerOptions::greedy(), 3)?.with_processor(no_twice);
/// let ids: Result<Vec<_>, _> = (0..4).map(|_| sampler.sample(&mut [1.0, 3.0, 2.0])).collect();
/// assert_eq!(ids?, [1, 2, 1, 2]);
/// # Ok::<(), inkstone::Error>(())
/// ```
pub trait LogitsProcessor: Send {
    /// Changes the logits of the token after `ids` (the accepted prompt and the sampled ids).
    /// `logits` has one element for each token of the vocabulary; negative infinity forbids a
    /// token.
    ///
    /// # Errors
    /// Any error ends the call of [`Sampler::sample`], whose history is then unchanged.
    fn process(&mut self, ids: &[u32], logits: &mut [f32]) -> Result<()>;

    /// Returns the number of tokens at the start of `next` that may follow `ids`, one after the
    /// other. Drafts of tokens are shortened by it before the model verifies them; each token is
    /// chosen by [`process`](Self::process) all the same. The default implementation returns the
    /// number of all.
    ///
    /// # Errors
    /// Any error ends the generation.
    fn allowed(&mut self, ids: &[u32], next: &[u32]) -> Result<usize> {
        let _ = ids;
        Ok(next.len())
    }
}

impl<F: FnMut(&[u32], &mut [f32]) -> Result<()> + Send> LogitsProcessor for F {
    fn process(&mut self, ids: &[u32], logits: &mut [f32]) -> Result<()> {
        self(ids, logits)
    }
}

impl LogitsProcessor for Box<dyn LogitsProcessor> {
    fn process(&mut self, ids: &[u32], logits: &mut [f32]) -> Result<()> {
        (**self).process(ids, logits)
    }

    fn allowed(&mut self, ids: &[u32], next: &[u32]) -> Result<usize> {
        (**self).allowed(ids, next)
    }
}

/// Chooses the tokens of one sequence. It has options, a random state and a history for the
/// penalties.
///
/// ```
/// use inkstone::sampler::{Sampler, SamplerOptions};
///
/// let options = SamplerOptions { seed: Some(7), ..SamplerOptions::default() };
/// let mut sampler = Sampler::new(&options, 3)?;
/// let id = sampler.sample(&mut [0.5, 9.0, -1.0])?;
/// assert_eq!(id, 1);
/// # Ok::<(), inkstone::Error>(())
/// ```
pub struct Sampler {
    options: SamplerOptions,
    processors: Vec<Box<dyn LogitsProcessor>>,
    /// The grammar's stage. It runs after the processors, so that they cannot undo it.
    constraint: Option<Box<dyn LogitsProcessor>>,
    vocab_size: usize,
    seed: u64,
    random: Xoshiro256,
    history: History,
    bound: Option<SurpriseBound>,
    candidates: Candidates,
}

impl Sampler {
    /// Returns a sampler with an empty history, for a vocabulary of `vocab_size` tokens.
    ///
    /// # Errors
    /// [`Error::Argument`] if an option is out of its range or the vocabulary is empty.
    pub fn new(options: &SamplerOptions, vocab_size: usize) -> Result<Self> {
        options.check(vocab_size)?;
        if vocab_size == 0 || u32::try_from(vocab_size).is_err() {
            return Err(Error::argument("vocab_size", format!("is {vocab_size}, but must be from 1 to {}", u32::MAX)));
        }
        let seed = options.seed.unwrap_or_else(random::fresh_seed);
        Ok(Self {
            options: options.clone(),
            processors: Vec::new(),
            constraint: None,
            vocab_size,
            seed,
            random: Xoshiro256::new(seed),
            history: History::default(),
            bound: options.mirostat.map(SurpriseBound::new),
            candidates: Candidates::default(),
        })
    }

    /// Adds a stage after the processors added earlier, and before all other stages.
    #[must_use]
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processors.push(Box::new(processor));
        self
    }

    /// Sets the stage that runs after the caller's processors and constrains the tokens.
    #[cfg(feature = "constrained")]
    pub(crate) fn with_constraint(mut self, constraint: impl LogitsProcessor + 'static) -> Self {
        self.constraint = Some(Box::new(constraint));
        self
    }

    /// Returns the seed: the one of the options, or else a random one.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Adds a token to the history without sampling: a token of the prompt, or one chosen
    /// elsewhere.
    ///
    /// # Errors
    /// [`Error::Argument`] if the id is not in the vocabulary.
    pub fn accept(&mut self, id: u32) -> Result<()> {
        check_id("id", id, self.vocab_size)?;
        self.history.push(id, &self.options);
        Ok(())
    }

    /// Chooses the next token by `logits`, one for each token of the vocabulary, and adds it to the
    /// history. The stages before the truncations change `logits` in place.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are not `vocab_size` logits, if one is NaN or positive
    /// infinity, or if all are negative infinity; any error of a [`LogitsProcessor`]. The history
    /// is then unchanged.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32> {
        if logits.len() != self.vocab_size {
            let what = format!("have {} elements, but the vocabulary has {} tokens", logits.len(), self.vocab_size);
            return Err(Error::argument("logits", what));
        }
        for processor in &mut self.processors {
            processor.process(self.history.ids(), logits)?;
        }
        self.change(logits)?;
        let best = largest(logits)?;
        let id = if self.options.temperature == 0.0 { best.id } else { self.draw(logits, best) };
        self.history.push(id, &self.options);
        Ok(id)
    }

    /// Shortens drafts of the next tokens to those that the caller's processors and the constraint
    /// allow.
    pub(crate) fn cut_drafts(&mut self, drafts: &mut Vec<u32>) -> Result<()> {
        for processor in self.processors.iter_mut().chain(&mut self.constraint) {
            let allowed = processor.allowed(self.history.ids(), drafts)?;
            drafts.truncate(allowed);
        }
        Ok(())
    }

    /// Applies the stages between the caller's processors and the truncations.
    fn change(&mut self, logits: &mut [f32]) -> Result<()> {
        if let Some(constraint) = &mut self.constraint {
            constraint.process(self.history.ids(), logits)?;
        }
        for &(id, bias) in &self.options.logit_bias {
            logits[id as usize] += bias;
        }
        self.history.penalize(logits, &self.options);
        if let Some(dry) = &self.options.dry {
            self.history.discourage_repetition(logits, dry);
        }
        Ok(())
    }

    fn draw(&mut self, logits: &[f32], best: Candidate) -> u32 {
        let Self { options, candidates, random, .. } = self;
        if let Some(bound) = &mut self.bound {
            let kept = bound.select(candidates, logits, best, options.temperature);
            let drawn = kept[candidates::draw(kept.iter().map(|c| c.logit), kept[0].logit, 1.0, random.uniform())];
            bound.update(drawn.logit);
            return drawn.id;
        }
        if options.keeps_all() {
            let uniform = random.uniform();
            return candidates::draw(logits.iter().copied(), best.logit, options.temperature, uniform) as u32;
        }
        draw_truncated(candidates.select(logits, best, options.truncation()), options, random)
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, vocab_size, seed, processors, .. } = self;
        f.debug_struct("Sampler")
            .field("options", options)
            .field("vocab_size", vocab_size)
            .field("seed", seed)
            .field("processors", &processors.len())
            .finish_non_exhaustive()
    }
}

impl SamplerOptions {
    fn truncation(&self) -> Truncation {
        let Self { top_k, typical_p, top_p, min_p, .. } = *self;
        Truncation { top_k, typical_p, top_p, min_p }
    }

    /// Returns whether tokens are drawn from the whole vocabulary at a constant temperature.
    fn keeps_all(&self) -> bool {
        let Truncation { top_k, typical_p, top_p, min_p } = self.truncation();
        let truncates = top_k != 0 || typical_p < 1.0 || top_p < 1.0 || min_p > 0.0;
        !truncates && self.xtc.is_none() && self.dynamic_temperature.is_none()
    }
}

/// Draws one of the tokens that the truncations kept, which are sorted best first.
fn draw_truncated(mut kept: &[Candidate], options: &SamplerOptions, random: &mut Xoshiro256) -> u32 {
    if let Some(xtc) = options.xtc
        && random.uniform() < f64::from(xtc.probability)
    {
        kept = xtc.exclude(kept);
    }
    let uniform = random.uniform();
    let temperature =
        options.dynamic_temperature.map_or(options.temperature, |dynamic| dynamic.scale(options.temperature, kept));
    match temperature {
        0.0 => kept[0].id,
        _ => kept[candidates::draw(kept.iter().map(|c| c.logit), kept[0].logit, temperature, uniform)].id,
    }
}

impl Xtc {
    /// Returns the tokens from the last one that reaches the threshold.
    fn exclude<'a>(&self, kept: &'a [Candidate]) -> &'a [Candidate] {
        let total = candidates::log_total(kept);
        let reaching = kept.partition_point(|c| (f64::from(c.logit) - total).exp() >= f64::from(self.threshold));
        &kept[reaching.saturating_sub(1)..]
    }
}

impl DynamicTemperature {
    /// Returns the temperature for the remaining tokens.
    fn scale(&self, temperature: f32, kept: &[Candidate]) -> f32 {
        let total = candidates::log_total(kept);
        let log_p = kept.iter().map(|c| f64::from(c.logit) - total).filter(|log_p| log_p.is_finite());
        let entropy: f64 = log_p.map(|log_p| -log_p * log_p.exp()).sum();
        let maximum = (kept.len() as f64).ln();
        let share =
            if maximum > 0.0 { (entropy / maximum).clamp(0.0, 1.0).powf(f64::from(self.exponent)) } else { 0.0 };
        let (low, high) = ((temperature - self.range).max(0.0), temperature + self.range);
        low + (high - low) * share as f32
    }
}
