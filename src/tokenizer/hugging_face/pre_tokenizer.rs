//! Runs the pre-tokenizer of a `tokenizer.json`, with our own engine for the expressions that it
//! supports.
//!
//! The engine of the `tokenizers` crate backtracks. After a million steps it gives up, and silently
//! treats the rest of the text as one word. Our engine takes time proportional to the text's
//! length.

use std::sync::Arc;

use tokenizers::{
    Offsets, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    pattern::Pattern,
    pre_tokenizers::{PreTokenizerWrapper, split::SplitPattern},
};

use crate::{
    error::{Error, Result},
    tokenizer::pre,
};

/// The longest run of white space or capitals that the crate's engine handles. Expressions may
/// backtrack over each of them once or twice.
const LONGEST_RUN: usize = 1 << 18;

/// The steps of a pre-tokenizer.
#[derive(Clone)]
pub(super) struct PreTokenizerSteps(Vec<PreTokenizerStep>);

#[derive(Clone)]
enum PreTokenizerStep {
    Ours(Arc<pre::SplitStage>),
    Theirs(PreTokenizerWrapper),
}

impl From<PreTokenizerWrapper> for PreTokenizerSteps {
    fn from(pre_tokenizer: PreTokenizerWrapper) -> Self {
        Self(steps(&pre_tokenizer))
    }
}

fn steps(step: &PreTokenizerWrapper) -> Vec<PreTokenizerStep> {
    let ours = |expression: &str| Some(PreTokenizerStep::Ours(Arc::new(pre::SplitStage::from_expression(expression)?)));
    let steps = match step {
        PreTokenizerWrapper::Sequence(steps) => Some(steps.as_ref().iter().flat_map(self::steps).collect()),
        PreTokenizerWrapper::Split(split) => match &split.pattern {
            SplitPattern::Regex(expression) if split.behavior == SplitDelimiterBehavior::Isolated => {
                ours(expression).map(|step| vec![step])
            }
            _ => None,
        },
        PreTokenizerWrapper::ByteLevel(bytes) if bytes.use_regex && !bytes.add_prefix_space => {
            ours(pre::BYTE_LEVEL).map(|step| vec![step, PreTokenizerStep::Theirs(bytes.use_regex(false).into())])
        }
        _ => None,
    };
    steps.unwrap_or_else(|| vec![PreTokenizerStep::Theirs(step.clone())])
}

impl PreTokenizer for PreTokenizerSteps {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        self.0.iter().try_for_each(|step| match step {
            PreTokenizerStep::Ours(stage) => {
                text.split(|_, piece| piece.split(StagePattern(stage), SplitDelimiterBehavior::Isolated))
            }
            PreTokenizerStep::Theirs(step) => step.pre_tokenize(text),
        })
    }
}

impl PreTokenizerSteps {
    /// Returns an error for a text that the crate's engine may split wrongly.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] with the lengths of the runs.
    pub fn check(&self, text: &str) -> Result<()> {
        if !self.0.iter().any(backtracks) {
            return Ok(());
        }
        let (spaces, capitals) = (longest_run(text, char::is_whitespace), longest_run(text, char::is_uppercase));
        if spaces.max(capitals) <= LONGEST_RUN {
            return Ok(());
        }
        let what = format!(
            "the text has {spaces} white space characters and {capitals} capitals in a row; this tokenizer.json \
             handles at most {LONGEST_RUN}: shorten the text, or use a GGUF file"
        );
        Err(Error::Tokenizer(what))
    }
}

/// Returns whether a step runs an expression in the crate's engine.
fn backtracks(step: &PreTokenizerStep) -> bool {
    match step {
        PreTokenizerStep::Theirs(PreTokenizerWrapper::Split(split)) => matches!(split.pattern, SplitPattern::Regex(_)),
        PreTokenizerStep::Theirs(PreTokenizerWrapper::ByteLevel(bytes)) => bytes.use_regex,
        PreTokenizerStep::Theirs(_) | PreTokenizerStep::Ours(_) => false,
    }
}

/// Returns the length of the longest run of characters for which `is` holds.
fn longest_run(text: &str, is: impl Fn(char) -> bool) -> usize {
    let (mut longest, mut run) = (0, 0);
    for char in text.chars() {
        run = if is(char) { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// A pattern that matches the pieces of a stage.
struct StagePattern<'s>(&'s pre::SplitStage);

impl Pattern for StagePattern<'_> {
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
