//! Logits in, one token id out.
//!
//! The stages run in llama.cpp's order; each is skipped where its option is at its neutral value:
//!
//! 1. **The caller's own** ([`LogitsProcessor`]), in the order in which they were added; then the form of
//!    [`GenerateOptions::grammar`](crate::GenerateOptions), if there is one.
//! 2. **Logit bias**: each named token's logit is raised by its bias (negative infinity forbids the token).
//! 3. **Penalties** over the last `penalty_window` ids of the history (the accepted prompt and what was sampled). For a
//!    token seen `n > 0` times: the logit is divided by `repetition_penalty` where positive and multiplied by it
//!    otherwise ([Keskar et al. 2019](https://arxiv.org/abs/1909.05858), as in Hugging Face's
//!    `RepetitionPenaltyLogitsProcessor`), then lowered by `n * frequency_penalty + presence_penalty` (OpenAI's).
//! 4. **[DRY](Dry)**: tokens that would go on with a repetition are penalised by its length.
//! 5. **Greedy** where `temperature` is 0: the largest logit, the lowest id among equals. Nothing random is drawn.
//! 6. **[Mirostat]**, after the temperature and in place of all that follows but the draw.
//! 7. **Top-k**: the `top_k` largest logits; equal ones by lower id.
//! 8. **Typical-p** ([Meister et al. 2022](https://arxiv.org/abs/2202.00666)): the tokens whose surprise is nearest to the
//!    entropy, until their probabilities, over what top-k left, sum to at least `typical_p`.
//! 9. **Top-p** ([Holtzman et al. 2019](https://arxiv.org/abs/1904.09751)): the fewest most probable tokens whose
//!    probabilities, over what is left, sum to at least `top_p`.
//! 10. **Min-p** ([Nguyen et al. 2024](https://arxiv.org/abs/2407.01082)): tokens at least `min_p` times as probable as the
//!     most probable one.
//! 11. **[XTC](Xtc)**: now and then the most probable ones are left out.
//! 12. **Temperature**, [dynamic](DynamicTemperature) or not: `softmax(logits / temperature)` over the rest, and one draw.
//!
//! The temperature comes last, so that what the truncations keep does not depend on it.
//! A sampler owns its random state and its history: one per sequence, and the same seed gives the same ids.

use std::fmt;

use crate::error::{Error, Result};

mod candidates;
mod history;
mod logprobs;
mod mirostat;
mod options;
mod random;

pub use logprobs::{Logprobs, TokenLogprob};
pub use options::{Dry, DynamicTemperature, Mirostat, MirostatVersion, SamplerOptions, Xtc};

pub(crate) use candidates::largest;
use candidates::{Candidate, Candidates, Truncation};
use history::History;
use mirostat::Bound;
use options::check_id;
use random::Random;

/// A stage of a caller's own, before all others: it sees the logits as the model made them, and changes them.
///
/// A closure is one:
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
    /// Changes the logits of the token that follows `ids` (the accepted prompt and what was sampled), one for each token of
    /// the vocabulary; negative infinity forbids a token.
    ///
    /// # Errors
    /// Whatever keeps it from that; the sampler is then as it was before the call.
    fn process(&mut self, ids: &[u32], logits: &mut [f32]) -> Result<()>;
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
}

/// Chooses tokens for one sequence: the options, the random state and the history that the penalties look at.
///
/// ```
/// use inkstone::sampler::{Sampler, SamplerOptions};
///
/// let mut sampler = Sampler::new(&SamplerOptions { seed: Some(7), ..SamplerOptions::default() }, 3)?;
/// let id = sampler.sample(&mut [0.5, 9.0, -1.0])?;
/// assert_eq!(id, 1);
/// # Ok::<(), inkstone::Error>(())
/// ```
pub struct Sampler {
    options: SamplerOptions,
    processors: Vec<Box<dyn LogitsProcessor>>,
    /// Comes after them, so that none can undo it.
    form: Option<Box<dyn LogitsProcessor>>,
    vocab_size: usize,
    seed: u64,
    random: Random,
    history: History,
    bound: Option<Bound>,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler with an empty history for logits over `vocab_size` tokens.
    ///
    /// # Errors
    /// [`Error::Argument`] where an option is out of its range or the vocabulary is empty.
    pub fn new(options: &SamplerOptions, vocab_size: usize) -> Result<Self> {
        options.check(vocab_size)?;
        if vocab_size == 0 || u32::try_from(vocab_size).is_err() {
            return Err(Error::argument("vocab_size", format!("is {vocab_size}, but must be from 1 to {}", u32::MAX)));
        }
        let seed = options.seed.unwrap_or_else(random::fresh_seed);
        Ok(Self {
            options: options.clone(),
            processors: Vec::new(),
            form: None,
            vocab_size,
            seed,
            random: Random::new(seed),
            history: History::default(),
            bound: options.mirostat.map(Bound::new),
            candidates: Candidates::default(),
        })
    }

    /// Adds a stage before all others but those added already.
    #[must_use]
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processors.push(Box::new(processor));
        self
    }

    /// Keeps what is chosen to a form, whatever the caller's own stages make of the logits.
    #[cfg(feature = "constrained")]
    pub(crate) fn with_form(mut self, form: impl LogitsProcessor + 'static) -> Self {
        self.form = Some(Box::new(form));
        self
    }

    /// The seed in use: the one asked for, or the one that was taken where none was.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Adds a token to the history without sampling it: what the prompt holds, or ids chosen elsewhere.
    ///
    /// # Errors
    /// [`Error::Argument`] where the id is not in the vocabulary.
    pub fn accept(&mut self, id: u32) -> Result<()> {
        check_id("id", id, self.vocab_size)?;
        self.history.push(id, &self.options);
        Ok(())
    }

    /// Chooses the next token from `logits` (one for each token of the vocabulary; what comes before the truncations is
    /// applied to them in place) and adds it to the history.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are not `vocab_size` logits, where one is NaN or positive infinity, or where all
    /// are negative infinity; what a [`LogitsProcessor`] fails with. The sampler is then as it was before the call.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32> {
        if logits.len() != self.vocab_size {
            let what = format!("{} were given for a vocabulary of {}", logits.len(), self.vocab_size);
            return Err(Error::argument("logits", what));
        }
        for processor in self.processors.iter_mut().chain(&mut self.form) {
            processor.process(self.history.ids(), logits)?;
        }
        for &(id, bias) in &self.options.logit_bias {
            logits[id as usize] += bias;
        }
        self.history.penalize(logits, &self.options);
        if let Some(dry) = &self.options.dry {
            self.history.discourage_repetition(logits, dry);
        }
        let best = largest(logits)?;
        let id = if self.options.temperature == 0.0 { best.id } else { self.draw(logits, best) };
        self.history.push(id, &self.options);
        Ok(id)
    }

    /// How many of the largest logits tokens are chosen by, where no others matter.
    pub(crate) fn looks_at(&self) -> Option<usize> {
        self.options.looks_at().filter(|_| self.processors.is_empty() && self.form.is_none())
    }

    /// Chooses the next token as [`sample`](Self::sample) does, from as many of the largest logits as
    /// [`looks_at`](Self::looks_at) says, best first.
    pub(crate) fn sample_best(&mut self, best: impl Iterator<Item = (u32, f32)>) -> Result<u32> {
        let best = best.map(|(id, logit)| Candidate { logit, id });
        let Self { options, candidates, random, .. } = self;
        let id = draw_of(candidates.select_of_best(best, options.truncation())?, options, random);
        self.history.push(id, &self.options);
        Ok(id)
    }

    fn draw(&mut self, logits: &[f32], best: Candidate) -> u32 {
        let Self { options, candidates, random, .. } = self;
        if let Some(bound) = &mut self.bound {
            let kept = bound.select(candidates, logits, best, options.temperature);
            let drawn = kept[candidates::draw(kept.iter().map(|c| c.logit), kept[0].logit, 1.0, random.uniform())];
            bound.follow(drawn.logit);
            return drawn.id;
        }
        if options.keeps_all() {
            let uniform = random.uniform();
            return candidates::draw(logits.iter().copied(), best.logit, options.temperature, uniform) as u32;
        }
        draw_of(candidates.select(logits, best, options.truncation()), options, random)
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

    /// Whether tokens are drawn from the whole vocabulary at one temperature.
    fn keeps_all(&self) -> bool {
        let Truncation { top_k, typical_p, top_p, min_p } = self.truncation();
        let truncates = top_k != 0 || typical_p < 1.0 || top_p < 1.0 || min_p > 0.0;
        !truncates && self.xtc.is_none() && self.dynamic_temperature.is_none()
    }
}

/// The one drawn of what the truncations left, which comes best first.
fn draw_of(mut kept: &[Candidate], options: &SamplerOptions, random: &mut Random) -> u32 {
    if let Some(xtc) = options.xtc
        && random.uniform() < f64::from(xtc.probability)
    {
        kept = xtc.exclude(kept);
    }
    let uniform = random.uniform();
    let temperature = options.dynamic_temperature.map_or(options.temperature, |d| d.at(options.temperature, kept));
    match temperature {
        0.0 => kept[0].id,
        _ => kept[candidates::draw(kept.iter().map(|c| c.logit), kept[0].logit, temperature, uniform)].id,
    }
}

impl Xtc {
    /// All from the last one that reaches the threshold on.
    fn exclude<'a>(&self, kept: &'a [Candidate]) -> &'a [Candidate] {
        let total = candidates::log_total(kept);
        let reach = kept.partition_point(|c| (f64::from(c.logit) - total).exp() >= f64::from(self.threshold));
        &kept[reach.saturating_sub(1)..]
    }
}

impl DynamicTemperature {
    /// The temperature for these candidates.
    fn at(&self, temperature: f32, kept: &[Candidate]) -> f32 {
        let total = candidates::log_total(kept);
        let log_p = kept.iter().map(|c| f64::from(c.logit) - total).filter(|log_p| log_p.is_finite());
        let entropy: f64 = log_p.map(|log_p| -log_p * log_p.exp()).sum();
        let most = (kept.len() as f64).ln();
        let share = if most > 0.0 { (entropy / most).clamp(0.0, 1.0).powf(f64::from(self.exponent)) } else { 0.0 };
        let (least, most) = ((temperature - self.range).max(0.0), temperature + self.range);
        least + (most - least) * share as f32
    }
}
