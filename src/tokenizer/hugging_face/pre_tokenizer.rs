//! The pre-tokenizer of a `tokenizer.json`: the `tokenizers` crate's, but for the expressions that our own engine can run.
//!
//! The crate's engine backtracks, and where it has done so a million times, it takes the rest of the text for one word and says
//! nothing. Ours takes time in proportion to the text's length.

use std::sync::Arc;

use serde::Deserialize;
use tokenizers::{
    Offsets, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    pattern::Pattern,
    pre_tokenizers::{PreTokenizerWrapper, split::SplitPattern},
};

use crate::{
    error::{Error, Result},
    tokenizer::pre,
};

/// White space or capitals in a row that the crate's engine is trusted with. Expressions may go back over each of them once or twice.
const LONGEST_RUN: usize = 1 << 18;

/// What cuts a text, step by step.
#[derive(Clone, Deserialize)]
#[serde(from = "PreTokenizerWrapper")]
pub(super) struct Cutter(Vec<Step>);

#[derive(Clone)]
enum Step {
    Ours(Arc<pre::Stage>),
    Theirs(PreTokenizerWrapper),
}

impl From<PreTokenizerWrapper> for Cutter {
    fn from(pre_tokenizer: PreTokenizerWrapper) -> Self {
        Self(steps(&pre_tokenizer))
    }
}

fn steps(step: &PreTokenizerWrapper) -> Vec<Step> {
    let ours = |expression: &str| Some(Step::Ours(Arc::new(pre::Stage::from_expression(expression)?)));
    let steps = match step {
        PreTokenizerWrapper::Sequence(steps) => Some(steps.as_ref().iter().flat_map(self::steps).collect()),
        PreTokenizerWrapper::Split(split) => match &split.pattern {
            SplitPattern::Regex(expression) if split.behavior == SplitDelimiterBehavior::Isolated => {
                ours(expression).map(|step| vec![step])
            }
            _ => None,
        },
        PreTokenizerWrapper::ByteLevel(bytes) if bytes.use_regex && !bytes.add_prefix_space => {
            ours(pre::BYTE_LEVEL).map(|step| vec![step, Step::Theirs(bytes.use_regex(false).into())])
        }
        _ => None,
    };
    steps.unwrap_or_else(|| vec![Step::Theirs(step.clone())])
}

impl PreTokenizer for Cutter {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        self.0.iter().try_for_each(|step| match step {
            Step::Ours(stage) => text.split(|_, piece| piece.split(Words(stage), SplitDelimiterBehavior::Isolated)),
            Step::Theirs(step) => step.pre_tokenize(text),
        })
    }
}

impl Cutter {
    /// Refuses a text that the crate's engine may cut wrongly.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] with what is too long.
    pub fn check(&self, text: &str) -> Result<()> {
        if !self.0.iter().any(backtracks) {
            return Ok(());
        }
        let (spaces, capitals) = (longest_run(text, char::is_whitespace), longest_run(text, char::is_uppercase));
        if spaces.max(capitals) <= LONGEST_RUN {
            return Ok(());
        }
        let what = format!(
            "the text has {spaces} white space characters and {capitals} capitals in a row; this tokenizer.json cuts no more than \
             {LONGEST_RUN} reliably: shorten the text, or use a GGUF file"
        );
        Err(Error::Tokenizer(what))
    }
}

/// Whether a step runs an expression in the crate's engine.
fn backtracks(step: &Step) -> bool {
    match step {
        Step::Theirs(PreTokenizerWrapper::Split(split)) => matches!(split.pattern, SplitPattern::Regex(_)),
        Step::Theirs(PreTokenizerWrapper::ByteLevel(bytes)) => bytes.use_regex,
        Step::Theirs(_) | Step::Ours(_) => false,
    }
}

/// Characters in a row of which this holds.
fn longest_run(text: &str, is: impl Fn(char) -> bool) -> usize {
    let (mut longest, mut run) = (0, 0);
    for char in text.chars() {
        run = if is(char) { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// The words that a stage cuts.
struct Words<'s>(&'s pre::Stage);

impl Pattern for Words<'_> {
    fn find_matches(&self, text: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        let (mut words, mut end) = (Vec::new(), 0);
        self.0.split(text, &mut |word| {
            let start = end;
            end += word.len();
            words.push(((start, end), true));
        });
        Ok(words)
    }
}
