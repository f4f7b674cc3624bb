//! Drafts the next tokens of a text, so that one step can verify several.
//!
//! A [`Drafter`] proposes tokens, the model computes them in one step as it would compute a prompt,
//! and the sampler chooses each token from the model's logits as always. A draft that differs from
//! the chosen token is removed again, with those after it ([Leviathan et al.
//! 2022](https://arxiv.org/abs/2211.17192), for drafts that are not sampled). So the text does not
//! depend on drafts: the same seed gives the same text, as far as a token's logits are the same in
//! steps of several tokens ([`Decoder::step`](crate::Decoder::step)).
//!
//! Drafts come from repetitions in the text, from a smaller model, or from the model's own head for
//! multi-token prediction, which `decoder/mtp.rs` runs.
//!
//! A `Speculator` decides how many tokens to draft, by their acceptance so far and by the measured
//! times of steps.

mod acceptance;
mod draft_model;
mod drafted_text;
mod ngrams;
mod speculator;
mod step_times;
mod text_steps;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::draft_model::DraftModel;
pub(super) use self::{
    drafted_text::{DraftedText, SharedStep, TimedStep},
    ngrams::Ngrams,
    speculator::{Draft, DraftSource, Speculator},
    step_times::StepTimes,
    text_steps::TextSteps,
};
use crate::Result;

/// The largest number of rows in a step that verifies drafts: on GPUs, longer steps round
/// differently.
const MAX_ROWS: usize = 16;

/// The number of tokens to draft in each step of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Speculation {
    /// As many as make the text fastest, by the measured times and acceptance; none where drafts
    /// do not pay.
    #[default]
    Auto,
    /// As `Auto`, but at most this number.
    AtMost(usize),
    /// Exactly this number, as far as the drafter has them and the text and the context have room:
    /// for comparisons. At most 15.
    Exactly(usize),
    /// None.
    Off,
}

/// Proposes the next tokens of a text.
///
/// Drafts change the speed of a generation, and never its text. [`Generation::with_drafter`] and
/// [`GenerateRequest::with_drafter`] add a drafter to a text.
///
/// ```
/// use inkstone::{Drafter, GenerateOptions, Result, Runner};
///
/// /// Proposes the lines of a text that the answer probably repeats.
/// struct Lines(Vec<u32>);
///
/// impl Drafter for Lines {
///     fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
///         let last = ids.last().and_then(|last| self.0.iter().position(|id| id == last));
///         draft.extend(last.iter().flat_map(|last| &self.0[last + 1..]).take(max));
///         Ok(())
///     }
/// }
///
/// let mut runner = Runner::from_gguf("tests/data/storyteller/storyteller.gguf")?;
/// let lines = runner.tokenizer().encode_continuation("Once upon a time, there was a little fox.")?;
/// let options = GenerateOptions { max_tokens: Some(20), ..Default::default() };
/// let text = runner.generate("Once upon", &options)?.with_drafter(Lines(lines)).into_text()?;
/// # Ok::<(), inkstone::Error>(())
/// ```
///
/// [`Generation::with_drafter`]: crate::Generation::with_drafter
/// [`GenerateRequest::with_drafter`]: crate::GenerateRequest::with_drafter
pub trait Drafter: Send + Sync {
    /// Prepares for a text that begins with `prompt`, before its first token. `goes_on` returns
    /// false when the text has been stopped; the rest of the work is then in vain. The default
    /// implementation has nothing to do.
    ///
    /// # Errors
    /// Any error ends the generation.
    fn start(&mut self, prompt: &[u32], goes_on: &dyn Fn() -> bool) -> Result<()> {
        let _ = (prompt, goes_on);
        Ok(())
    }

    /// Appends to `draft`, which is empty, up to `max` tokens that may follow `ids`: the prompt and
    /// the text so far. Ids in the place of an image's rows are 0. Further tokens and ids beyond
    /// the model's vocabulary are ignored.
    ///
    /// # Errors
    /// Any error ends the generation.
    fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()>;
}

/// Statistics of the drafts of a text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpeculationSummary {
    /// Number of steps that verified drafts.
    pub steps: usize,
    /// Number of drafted tokens that were verified.
    pub drafted: usize,
    /// Number of drafted tokens that the sampler chose, too.
    pub accepted: usize,
    /// [`drafted`](Self::drafted) by position in the draft.
    pub drafted_by_position: Vec<usize>,
    /// [`accepted`](Self::accepted) by position in the draft.
    pub accepted_by_position: Vec<usize>,
    /// Time for drafting.
    pub drafting: Duration,
    /// Time of the steps that verified drafts.
    pub verifying: Duration,
    /// The reason why the text has no drafts, if it has none.
    pub off: Option<String>,
}

impl SpeculationSummary {
    /// Returns the share of drafted tokens that were accepted; 0 if there were none.
    pub fn acceptance(&self) -> f64 {
        if self.drafted == 0 { 0.0 } else { self.accepted as f64 / self.drafted as f64 }
    }

    /// Returns the number of tokens that a step with drafts gave, on average; 0 if there were none.
    pub fn tokens_per_step(&self) -> f64 {
        if self.steps == 0 { 0.0 } else { (self.accepted + self.steps) as f64 / self.steps as f64 }
    }

    fn count_draft(&mut self, len: usize, time: Duration) {
        self.off = None;
        self.steps += 1;
        self.verifying += time;
        self.drafted += len;
        let longest = self.drafted_by_position.len().max(len);
        self.drafted_by_position.resize(longest, 0);
        self.accepted_by_position.resize(longest, 0);
        self.drafted_by_position[..len].iter_mut().for_each(|count| *count += 1);
    }

    fn count_accepted(&mut self, position: usize) {
        self.accepted += 1;
        self.accepted_by_position[position] += 1;
    }
}
