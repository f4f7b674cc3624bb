//! Logits in, one token id out.
//!
//! The stages run in llama.cpp's order; each is skipped where its option is at its neutral value:
//!
//! 1. **Logit bias**: each named token's logit is raised by its bias (negative infinity forbids the token).
//! 2. **Penalties** over the last `penalty_window` ids of the history (the accepted prompt and what was sampled). For a
//!    token seen `n > 0` times: the logit is divided by `repetition_penalty` where positive and multiplied by it
//!    otherwise ([Keskar et al. 2019](https://arxiv.org/abs/1909.05858), as in Hugging Face's
//!    `RepetitionPenaltyLogitsProcessor`), then lowered by `n * frequency_penalty + presence_penalty` (OpenAI's).
//! 3. **Greedy** where `temperature` is 0: the largest logit, the lowest id among equals. Nothing random is drawn.
//! 4. **Top-k**: the `top_k` largest logits; equal ones by lower id.
//! 5. **Top-p** ([Holtzman et al. 2019](https://arxiv.org/abs/1904.09751)): the fewest most probable tokens whose
//!    probabilities, over what top-k left, sum to at least `top_p`.
//! 6. **Min-p** ([Nguyen et al. 2024](https://arxiv.org/abs/2407.01082)): tokens at least `min_p` times as probable as the
//!    most probable one.
//! 7. **Temperature**: `softmax(logits / temperature)` over the rest, and one draw from it.
//!
//! The temperature comes last, so that what the truncations keep does not depend on it.
//! A sampler owns its random state and its history: one per sequence, and the same seed gives the same ids.

use std::collections::{HashMap, VecDeque};

use crate::error::{Error, Result};

mod candidates;
mod random;

pub(crate) use candidates::largest;
use candidates::{Candidate, Candidates};
use random::Random;

/// How the next token is chosen. The defaults are llama.cpp's; [`SamplerOptions::greedy`] draws nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits before the draw; 0 is greedy, 1 leaves the model's distribution. At least 0; default 0.8.
    pub temperature: f32,
    /// Keeps this many of the most probable tokens; 0 keeps all. Default 40.
    pub top_k: usize,
    /// Keeps the fewest most probable tokens with at least this much probability together; 1 keeps all.
    /// From 0 (the best alone) to 1; default 0.95.
    pub top_p: f32,
    /// Keeps the tokens at least this many times as probable as the best one; 0 keeps all. From 0 to 1; default 0.05.
    pub min_p: f32,
    /// Divides the positive and multiplies the negative logits of tokens in the window; 1 is none. Above 0; default 1.
    pub repetition_penalty: f32,
    /// Is taken from a token's logit for each time it is in the window; 0 is none. Default 0.
    pub frequency_penalty: f32,
    /// Is taken from a token's logit where it is in the window at all; 0 is none. Default 0.
    pub presence_penalty: f32,
    /// How many of the last ids the three penalties look at; `usize::MAX` for all. Default 64.
    pub penalty_window: usize,
    /// Added to the logits of these token ids; negative infinity forbids the token. Default empty.
    pub logit_bias: Vec<(u32, f32)>,
    /// Where the random draws start: the same seed gives the same ids. `None`, the default, takes a new one each time,
    /// which [`Sampler::seed`] tells.
    pub seed: Option<u64>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window: 64,
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

    /// Checks every option's range, and the biased ids against the vocabulary.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the first option out of its range (NaN always is).
    pub fn check(&self, vocab_size: usize) -> Result<()> {
        in_range("temperature", self.temperature, "0 or more", |t| t >= 0.0)?;
        in_range("top_p", self.top_p, "from 0 to 1", |p| (0.0..=1.0).contains(&p))?;
        in_range("min_p", self.min_p, "from 0 to 1", |p| (0.0..=1.0).contains(&p))?;
        in_range("repetition_penalty", self.repetition_penalty, "more than 0", |r| r > 0.0)?;
        in_range("frequency_penalty", self.frequency_penalty, "finite", |_| true)?;
        in_range("presence_penalty", self.presence_penalty, "finite", |_| true)?;
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
        (count > 0 && !self.has_penalties() && self.logit_bias.is_empty()).then_some(count)
    }

    fn has_penalties(&self) -> bool {
        self.penalty_window > 0
            && (self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0)
    }
}

/// The one drawn of candidates, best first.
fn draw_of(kept: &[Candidate], temperature: f32, uniform: f64) -> u32 {
    kept[candidates::draw(kept.iter().map(|c| c.logit), kept[0].logit, temperature, uniform)].id
}

fn in_range(name: &'static str, value: f32, range: &str, holds: impl Fn(f32) -> bool) -> Result<()> {
    if value.is_finite() && holds(value) {
        return Ok(());
    }
    Err(Error::argument(name, format!("is {value}, but must be {range}")))
}

fn check_id(name: &'static str, id: u32, vocab_size: usize) -> Result<()> {
    if (id as usize) < vocab_size {
        return Ok(());
    }
    Err(Error::argument(name, format!("token {id} is not in the vocabulary of {vocab_size}")))
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
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
    vocab_size: usize,
    seed: u64,
    random: Random,
    window: VecDeque<u32>,
    counts: HashMap<u32, u32>,
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
            vocab_size,
            seed,
            random: Random::new(seed),
            window: VecDeque::new(),
            counts: HashMap::new(),
            candidates: Candidates::default(),
        })
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
        self.remember(id);
        Ok(())
    }

    /// Chooses the next token from `logits` (one for each token of the vocabulary; biases and penalties are applied
    /// to them in place) and adds it to the history.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are not `vocab_size` logits, where one is NaN or positive infinity, or where all
    /// are negative infinity. The sampler is then as it was before the call.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32> {
        if logits.len() != self.vocab_size {
            let what = format!("{} were given for a vocabulary of {}", logits.len(), self.vocab_size);
            return Err(Error::argument("logits", what));
        }
        for &(id, bias) in &self.options.logit_bias {
            logits[id as usize] += bias;
        }
        self.penalize(logits);
        let best = largest(logits)?;
        let id = if self.options.temperature == 0.0 { best.id } else { self.draw(logits, best) };
        self.remember(id);
        Ok(id)
    }

    /// Chooses the next token as [`sample`](Self::sample) does, from as many of the largest logits as
    /// [`SamplerOptions::looks_at`] says, best first.
    pub(crate) fn sample_best(&mut self, best: impl Iterator<Item = (u32, f32)>) -> Result<u32> {
        let SamplerOptions { temperature, top_p, min_p, .. } = self.options;
        let best = best.map(|(id, logit)| Candidate { logit, id });
        let kept = self.candidates.select_of_best(best, top_p, min_p)?;
        let id = draw_of(kept, temperature, self.random.uniform());
        self.remember(id);
        Ok(id)
    }

    fn penalize(&self, logits: &mut [f32]) {
        for (&id, &count) in &self.counts {
            let logit = &mut logits[id as usize];
            let repetition = self.options.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
            *logit -= count as f32 * self.options.frequency_penalty + self.options.presence_penalty;
        }
    }

    fn draw(&mut self, logits: &[f32], best: Candidate) -> u32 {
        let SamplerOptions { temperature, top_k, top_p, min_p, .. } = self.options;
        let uniform = self.random.uniform();
        let truncates = top_k != 0 || top_p < 1.0 || min_p > 0.0;
        if !truncates {
            return candidates::draw(logits.iter().copied(), best.logit, temperature, uniform) as u32;
        }
        let kept = self.candidates.select(logits, best, top_k, top_p, min_p);
        draw_of(kept, temperature, uniform)
    }

    fn remember(&mut self, id: u32) {
        if !self.options.has_penalties() {
            return;
        }
        self.window.push_back(id);
        *self.counts.entry(id).or_insert(0) += 1;
        if self.window.len() > self.options.penalty_window
            && let Some(old) = self.window.pop_front()
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
    }
}
