//! Splits a text into words, within which byte-level BPE merges.
//!
//! `tokenizer.ggml.pre` names the split of a model's training, by the regular expressions in
//! `table.rs`. Most of them end in a look-ahead, `\s+(?!\S)`: white space without its last
//! character before other text. Engines with look-ahead backtrack, and fail on long texts;
//! therefore each look-ahead that occurs has a [`SplitRule`].

#[cfg(feature = "tokenizers")]
mod expression;
mod table;

use regex_automata::{Anchored, Input, meta::Regex};

#[cfg(feature = "tokenizers")]
pub(super) use self::expression::BYTE_LEVEL;
use crate::error::{Error, Result};

/// The split of a model's text, and other settings that `tokenizer.ggml.pre` implies.
pub(super) struct PreTokenizer {
    /// The values of `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// The rules; each one splits the pieces of the one before.
    stages: &'static [SplitRule<'static>],
    /// Whether a word that is in the vocabulary becomes that token without applying merges.
    pub ignore_merges: bool,
    /// Whether a begin-of-sequence token is added if the file does not say.
    pub add_bos: bool,
}

/// A rule for splitting a text at matches. The text between two matches is one piece.
#[derive(Clone, Copy)]
enum SplitRule<'e> {
    /// Splits at the matches of an expression.
    At(&'e str),
    /// Splits at the matches of an expression, or else of `\s+(?!\S)|\s+`.
    Words(&'e str),
    /// Splits at the matches of an expression, and within them into groups of three characters,
    /// counted from the right.
    Threes(&'e str),
    /// Splits numbers that no word continues into such groups: `\d{1,3}(?=(?:\d{3})*\b)`, with the
    /// words of Oniguruma.
    Thousands,
    /// Splits before such groups of digits: `(?=(\d{3})+(?!\d))`.
    BeforeThrees,
    /// Splits white space within a line into lengths that are powers of two, the longest first:
    /// `\s{512}(?!\S)|\s{256}(?!\S)|…|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`, after
    /// [`Words`](Self::Words).
    Powers,
}

/// The pieces that a match becomes.
#[derive(Clone, Copy)]
enum MatchAction {
    /// The match is a piece.
    All,
    /// The match without its last character is a piece; the search continues at that character.
    ButLast,
    /// Groups of three characters, counted from the right, are pieces.
    Threes,
    /// A piece begins at each such group.
    BeforeThrees,
    /// Pieces with lengths that are powers of two up to 512 characters, the longest first.
    Powers,
    /// The match is not split off.
    Ignore,
}

impl<'e> SplitRule<'e> {
    /// Returns the expressions, in order of priority, and the action for each.
    fn expressions(self) -> Vec<(&'e str, MatchAction)> {
        match self {
            Self::At(expression) => vec![(expression, MatchAction::All)],
            Self::Words(expression) => {
                vec![
                    (expression, MatchAction::All),
                    (r"\s+$", MatchAction::All),
                    (r"\s+\s", MatchAction::ButLast),
                    (r"\s", MatchAction::All),
                ]
            }
            Self::Threes(expression) => vec![(expression, MatchAction::Threes)],
            Self::BeforeThrees => vec![(r"\d+", MatchAction::BeforeThrees)],
            Self::Powers => vec![(r"^[^\S\r\n]+$", MatchAction::Powers)],
            Self::Thousands => {
                vec![(r"\d+[\p{Alphabetic}\p{M}\p{Pc}¹²³¼½¾]", MatchAction::Ignore), (r"\d+", MatchAction::Threes)]
            }
        }
    }
}

/// Returns the pre-tokenizer of a value of `tokenizer.ggml.pre`.
///
/// # Errors
/// [`Error::Metadata`] for an unknown or missing value.
pub(super) fn find(name: Option<&str>) -> Result<&'static PreTokenizer> {
    const KEY: &str = "tokenizer.ggml.pre";
    let known = || table::PRE_TOKENIZERS.iter().flat_map(|pre| pre.names).copied().collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        let what = format!(
            "is missing, so the split of text into words is unknown: convert the model again; known values: {}",
            known()
        );
        return Err(Error::metadata(KEY, what));
    };
    let unknown =
        || Error::metadata(KEY, format!("`{name}` is a pre-tokenizer that is not supported; supported: {}", known()));
    table::PRE_TOKENIZERS.iter().find(|pre| pre.names.contains(&name)).ok_or_else(unknown)
}

/// The compiled rules of a pre-tokenizer.
pub(super) struct Splitter(Vec<SplitStage>);

/// A compiled rule.
pub(super) struct SplitStage {
    regex: Regex,
    /// The action for each expression.
    actions: Vec<MatchAction>,
}

impl Splitter {
    pub fn new(pre_tokenizer: &'static PreTokenizer) -> Result<Self> {
        Ok(Self(pre_tokenizer.stages.iter().map(|rule| SplitStage::new(*rule)).collect::<Result<_>>()?))
    }

    /// Calls `each` with every word, in order. The concatenated words are the text.
    pub fn split<'t>(&self, text: &'t str, each: &mut dyn FnMut(&'t str)) {
        split(&self.0, text, each);
    }
}

fn split<'t>(stages: &[SplitStage], text: &'t str, each: &mut dyn FnMut(&'t str)) {
    let Some((stage, rest)) = stages.split_first() else { return each(text) };
    stage.split(text, &mut |piece| split(rest, piece, each));
}

impl SplitStage {
    fn new(rule: SplitRule) -> Result<Self> {
        let (expressions, actions): (Vec<&str>, Vec<MatchAction>) = rule.expressions().into_iter().unzip();
        let regex = Regex::new_many(&expressions)
            .map_err(|e| Error::Tokenizer(format!("an expression of the pre-tokenizer cannot be compiled: {e}")))?;
        Ok(Self { regex, actions })
    }

    /// Calls `each` with every piece, in order. The concatenated pieces are the text.
    pub fn split<'t>(&self, text: &'t str, each: &mut dyn FnMut(&'t str)) {
        // The end of the last piece, and the end of the searched text.
        let (mut start, mut searched) = (0, 0);
        while let Some((from, to, action)) = self.find(text, searched) {
            let mut cut = |at: usize| {
                if start < at {
                    each(&text[start..at]);
                    start = at;
                }
            };
            let word = &text[from..to];
            searched = to;
            if !matches!(action, MatchAction::BeforeThrees | MatchAction::Ignore) {
                cut(from);
            }
            match action {
                MatchAction::All => cut(to),
                MatchAction::ButLast => {
                    searched -= word.chars().next_back().map_or(0, char::len_utf8);
                    cut(searched);
                }
                MatchAction::Threes => {
                    threes(word).for_each(|at| cut(from + at));
                    cut(to);
                }
                MatchAction::BeforeThrees => threes(word).for_each(|at| cut(from + at)),
                MatchAction::Powers => powers(word).for_each(|at| cut(from + at)),
                MatchAction::Ignore => {}
            }
        }
        if start < text.len() {
            each(&text[start..]);
        }
    }

    /// Returns the start and the end of the next match, and its action.
    fn find(&self, text: &str, from: usize) -> Option<(usize, usize, MatchAction)> {
        let input = Input::new(text).range(from..);
        // Most matches begin at the end of the last one, which an anchored search finds faster.
        let adjacent = self.regex.search_half(&input.clone().anchored(Anchored::Yes));
        if let Some(end) = adjacent {
            return Some((from, end.offset(), self.actions[end.pattern().as_usize()]));
        }
        let found = self.regex.search(&input)?;
        Some((found.start(), found.end(), self.actions[found.pattern().as_usize()]))
    }
}

/// Returns the offsets of groups of three characters, counted from the end.
fn threes(number: &str) -> impl Iterator<Item = usize> {
    let digits = number.chars().count();
    number
        .char_indices()
        .enumerate()
        .filter(move |(index, _)| (digits - index).is_multiple_of(3))
        .map(|(_, (at, _))| at)
}

/// Returns the end offsets of pieces with lengths that are powers of two, the longest first.
fn powers(space: &str) -> impl Iterator<Item = usize> {
    const LONGEST: usize = 512;
    let mut chars = space.chars();
    let mut remaining = space.chars().count();
    std::iter::from_fn(move || {
        let length = LONGEST.min(1 << remaining.checked_ilog2()?);
        remaining -= length;
        chars.nth(length - 1)?;
        Some(space.len() - chars.as_str().len())
    })
}
