//! A text in; the words that byte-level BPE merges within out.
//!
//! `tokenizer.ggml.pre` names how a model's text was cut in training: by regular expressions, which `table.rs` lists. Most end in a
//! look-ahead, `\s+(?!\S)`: white space but for its last character where something follows. Engines with look-ahead backtrack, and
//! give up on long texts; so the few look-aheads that there are each have a [`Cut`] of their own.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

use crate::error::{Error, Result};

#[cfg(feature = "tokenizers")]
mod expression;
mod table;

#[cfg(feature = "tokenizers")]
pub(super) use expression::BYTE_LEVEL;

/// How a model's text is cut.
pub(super) struct Row {
    /// The values of `tokenizer.ggml.pre` that mean it.
    names: &'static [&'static str],
    /// Each cuts what the one before left.
    stages: &'static [Cut<'static>],
    /// Whether a word that is a token is that token, whatever its merges would give.
    pub ignore_merges: bool,
    /// Whether sequences begin with a mark where the file does not say.
    pub add_bos: bool,
}

/// One way to cut a text. What lies between two matches is one piece.
#[derive(Clone, Copy)]
enum Cut<'e> {
    /// At the matches of an expression.
    At(&'e str),
    /// At the matches of an expression or else of `\s+(?!\S)|\s+`.
    Words(&'e str),
    /// At the matches of an expression, and within them at groups of three characters, counted from the right.
    Threes(&'e str),
    /// At such groups of digits, in numbers that a word does not go on from: `\d{1,3}(?=(?:\d{3})*\b)`, where words are Oniguruma's.
    Thousands,
    /// Before such groups of digits: `(?=(\d{3})+(?!\d))`.
    BeforeThrees,
    /// White space within a line into lengths that are powers of two, the longest first:
    /// `\s{512}(?!\S)|\s{256}(?!\S)|…|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`, once [`Words`](Self::Words) has cut off what is before a word.
    Powers,
}

/// What becomes of a match.
#[derive(Clone, Copy)]
enum Take {
    All,
    /// All but the last character is a piece, and that begins the next.
    ButLast,
    /// Groups of three characters from the right are a piece each.
    Threes,
    /// Such a group begins a piece.
    BeforeThrees,
    /// Powers of two up to 512 characters are a piece each, the longest first.
    Powers,
    /// Nothing is cut.
    Nothing,
}

impl<'e> Cut<'e> {
    /// The expressions, of which the first that matches counts, and what becomes of their matches.
    fn expressions(self) -> Vec<(&'e str, Take)> {
        match self {
            Self::At(expression) => vec![(expression, Take::All)],
            Self::Words(expression) => {
                vec![(expression, Take::All), (r"\s+$", Take::All), (r"\s+\s", Take::ButLast), (r"\s", Take::All)]
            }
            Self::Threes(expression) => vec![(expression, Take::Threes)],
            Self::BeforeThrees => vec![(r"\d+", Take::BeforeThrees)],
            Self::Powers => vec![(r"^[^\S\r\n]+$", Take::Powers)],
            Self::Thousands => vec![(r"\d+[\p{Alphabetic}\p{M}\p{Pc}¹²³¼½¾]", Take::Nothing), (r"\d+", Take::Threes)],
        }
    }
}

/// The row of a `tokenizer.ggml.pre`.
///
/// # Errors
/// [`Error::Metadata`] naming a pre-tokenizer that no row has.
pub(super) fn row(name: Option<&str>) -> Result<&'static Row> {
    const KEY: &str = "tokenizer.ggml.pre";
    let known = || table::ROWS.iter().flat_map(|row| row.names).copied().collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        let what = format!("is missing, so how text is cut is unknown: convert the model again; known: {}", known());
        return Err(Error::metadata(KEY, what));
    };
    let unknown =
        || Error::metadata(KEY, format!("`{name}` is a pre-tokenizer that is not supported; supported: {}", known()));
    table::ROWS.iter().find(|row| row.names.contains(&name)).ok_or_else(unknown)
}

/// A row made ready to run.
pub(super) struct Splitter(Vec<Stage>);

/// A cut made ready to run.
pub(super) struct Stage {
    regex: Regex,
    /// Of each of its expressions.
    takes: Vec<Take>,
}

impl Splitter {
    pub fn new(row: &'static Row) -> Result<Self> {
        Ok(Self(row.stages.iter().map(|cut| Stage::new(*cut)).collect::<Result<_>>()?))
    }

    /// Calls `each` with every word, in order; joined they are the text.
    pub fn split<'t>(&self, text: &'t str, each: &mut dyn FnMut(&'t str)) {
        split(&self.0, text, each);
    }
}

fn split<'t>(stages: &[Stage], text: &'t str, each: &mut dyn FnMut(&'t str)) {
    let Some((stage, rest)) = stages.split_first() else { return each(text) };
    stage.split(text, &mut |piece| split(rest, piece, each));
}

impl Stage {
    fn new(cut: Cut) -> Result<Self> {
        let (expressions, takes): (Vec<&str>, Vec<Take>) = cut.expressions().into_iter().unzip();
        let regex = Regex::new_many(&expressions).map_err(|e| Error::Tokenizer(format!("pre-tokenizer: {e}")))?;
        Ok(Self { regex, takes })
    }

    /// Calls `each` with every piece, in order; joined they are the text.
    pub fn split<'t>(&self, text: &'t str, each: &mut dyn FnMut(&'t str)) {
        // Up to where the text has been given out, and up to where it has been searched.
        let (mut start, mut searched) = (0, 0);
        while let Some((from, to, take)) = self.find(text, searched) {
            let mut cut = |at: usize| {
                if start < at {
                    each(&text[start..at]);
                    start = at;
                }
            };
            let word = &text[from..to];
            searched = to;
            if !matches!(take, Take::BeforeThrees | Take::Nothing) {
                cut(from);
            }
            match take {
                Take::All => cut(to),
                Take::ButLast => {
                    searched -= word.chars().next_back().map_or(0, char::len_utf8);
                    cut(searched);
                }
                Take::Threes => {
                    threes(word).for_each(|at| cut(from + at));
                    cut(to);
                }
                Take::BeforeThrees => threes(word).for_each(|at| cut(from + at)),
                Take::Powers => powers(word).for_each(|at| cut(from + at)),
                Take::Nothing => {}
            }
        }
        if start < text.len() {
            each(&text[start..]);
        }
    }

    /// Where the next match begins and ends.
    fn find(&self, text: &str, from: usize) -> Option<(usize, usize, Take)> {
        let input = Input::new(text).range(from..);
        // Words mostly follow one another, and where a match begins need not be looked for if it is known.
        let here = self.regex.search_half(&input.clone().anchored(Anchored::Yes));
        if let Some(end) = here {
            return Some((from, end.offset(), self.takes[end.pattern().as_usize()]));
        }
        let found = self.regex.search(&input)?;
        Some((found.start(), found.end(), self.takes[found.pattern().as_usize()]))
    }
}

/// Where groups of three characters begin, counted from the end.
fn threes(number: &str) -> impl Iterator<Item = usize> {
    let digits = number.chars().count();
    number
        .char_indices()
        .enumerate()
        .filter(move |(index, _)| (digits - index).is_multiple_of(3))
        .map(|(_, (at, _))| at)
}

/// Where lengths end that are powers of two, the longest first.
fn powers(space: &str) -> impl Iterator<Item = usize> {
    const LONGEST: usize = 512;
    let mut chars = space.chars();
    let mut left = space.chars().count();
    std::iter::from_fn(move || {
        let length = LONGEST.min(1 << left.checked_ilog2()?);
        left -= length;
        chars.nth(length - 1)?;
        Some(space.len() - chars.as_str().len())
    })
}
