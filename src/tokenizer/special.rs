//! A text in; its special tokens and the stretches between them out.
//!
//! At each place the longest special token wins, the leftmost place first: what Hugging Face's added tokens do.

use std::cmp::Reverse;
use std::iter;
use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use hashbrown::HashSet;

use super::Special;
use super::vocabulary::{Kind, Vocabulary};
use crate::error::{Error, Result};
use crate::gguf::{Gguf, Strings};

/// A part of a text.
pub(super) enum Fragment<'t> {
    /// A special token.
    Token(u32),
    /// Ordinary text, not empty.
    Text(&'t str),
}

/// Finds special tokens.
pub(super) struct SpecialFinder {
    /// Control, unknown and user-defined tokens.
    all: Finder,
    /// User-defined tokens alone.
    user_defined: Finder,
    /// The tokens that swallow the white space after them.
    strips_after: HashSet<u32>,
}

struct Finder {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

/// A special token in a text.
#[derive(Clone, Copy)]
struct Found {
    start: usize,
    end: usize,
    id: u32,
}

/// Models whose tokenizers strip the white space after special tokens (`rstrip` in their `tokenizer.json`), which GGUF
/// has no key for: what `general.name` contains, in lower case, and the tokens exempt from it.
const STRIPS_AFTER: &[(&[&str], &[&str])] = &[(&["phi-3", "phi3"], &["<unk>", "<s>", "<|endoftext|>"])];

impl SpecialFinder {
    /// A finder of the special ones among the `tokens` of a vocabulary.
    pub fn from_gguf(gguf: &Gguf, tokens: &Strings, vocabulary: &Vocabulary) -> Result<Self> {
        let special = |wanted: fn(Kind) -> bool| {
            let tokens = (0..).zip(tokens.iter()).zip(vocabulary.kinds());
            tokens.filter(move |((_, text), kind)| wanted(**kind) && !text.is_empty()).map(|(token, _)| token)
        };
        let all = |kind: Kind| kind.is_mark() || kind == Kind::UserDefined;
        let name = gguf.str("general.name")?.unwrap_or_default().to_lowercase();
        let row = STRIPS_AFTER.iter().find(|(names, _)| names.iter().any(|part| name.contains(part)));
        let strips_after =
            row.map(|(_, exempt)| special(all).filter(|(_, text)| !exempt.contains(text)).map(|(id, _)| id));
        Ok(Self {
            all: Finder::new(special(all))?,
            user_defined: Finder::new(special(|kind| kind == Kind::UserDefined))?,
            strips_after: strips_after.map(Iterator::collect).unwrap_or_default(),
        })
    }

    /// Calls `each` with every part of the text, in order.
    pub fn split<'t>(
        &self,
        text: &'t str,
        special: Special<'_>,
        each: impl FnMut(Fragment<'t>) -> Result<()>,
    ) -> Result<()> {
        match special {
            Special::Parsed => self.cut(text, self.all.every(text), each),
            Special::Plain => self.cut(text, self.user_defined.every(text), each),
            Special::PlainWithin(ranges) => self.cut(text, self.mixed(text, &masked(text, ranges)), each),
        }
    }

    /// The tokens of a text of which `masked` shows only what may be any of them: the rest has user-defined ones alone.
    fn mixed(&self, text: &str, masked: &[u8]) -> impl Iterator<Item = Found> {
        let (mut any, mut user_defined) = (self.all.next(masked, 0), self.user_defined.next(text.as_bytes(), 0));
        iter::from_fn(move || {
            let found = any.into_iter().chain(user_defined).min_by_key(|found| (found.start, Reverse(found.end)))?;
            if any.is_some_and(|next| next.start < found.end) {
                any = self.all.next(masked, found.end);
            }
            if user_defined.is_some_and(|next| next.start < found.end) {
                user_defined = self.user_defined.next(text.as_bytes(), found.end);
            }
            Some(found)
        })
    }

    fn cut<'t>(
        &self,
        text: &'t str,
        tokens: impl Iterator<Item = Found>,
        mut each: impl FnMut(Fragment<'t>) -> Result<()>,
    ) -> Result<()> {
        let mut start = 0;
        for found in tokens {
            // White space swallowed by the token before may reach into this one, if it begins with some.
            if found.start < start {
                continue;
            }
            if start < found.start {
                each(Fragment::Text(&text[start..found.start]))?;
            }
            each(Fragment::Token(found.id))?;
            start = found.end;
            if self.strips_after.contains(&found.id) {
                start = text.len() - text[start..].trim_start_matches(is_c_space).len();
            }
        }
        if start < text.len() {
            each(Fragment::Text(&text[start..]))?;
        }
        Ok(())
    }
}

/// A text's bytes with those of the ranges blotted out: no text has the byte 0xFF.
pub(super) fn masked(text: &str, ranges: &[Range<usize>]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for range in ranges {
        bytes[range.clone()].fill(0xFF);
    }
    bytes
}

/// `isspace` of C's default locale, which llama.cpp strips by.
fn is_c_space(char: char) -> bool {
    matches!(char, ' ' | '\t'..='\r')
}

impl Finder {
    fn new<'t>(tokens: impl Iterator<Item = (u32, &'t str)>) -> Result<Self> {
        let (ids, texts): (Vec<u32>, Vec<&str>) = tokens.unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|e| Error::Tokenizer(format!("the special tokens cannot be searched for: {e}")))?;
        Ok(Self { automaton, ids })
    }

    fn every(&self, text: &str) -> impl Iterator<Item = Found> {
        self.automaton.find_iter(text).map(|found| self.found(found))
    }

    /// The first token from this byte on.
    fn next(&self, bytes: &[u8], from: usize) -> Option<Found> {
        self.automaton.find(Input::new(bytes).range(from..)).map(|found| self.found(found))
    }

    fn found(&self, found: aho_corasick::Match) -> Found {
        Found { start: found.start(), end: found.end(), id: self.ids[found.pattern().as_usize()] }
    }
}
