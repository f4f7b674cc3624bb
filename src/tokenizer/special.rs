//! Splits a text into special tokens and the text between them.
//!
//! The leftmost special token is found first, and the longest of several at one place, as with
//! Hugging Face's added tokens.

use std::{cmp::Reverse, iter, ops::Range};

use aho_corasick::{AhoCorasick, Input, MatchKind};
use hashbrown::HashSet;

use super::{
    SpecialScope,
    vocabulary::{TokenType, Vocabulary},
};
use crate::{
    error::{Error, Result},
    gguf::{Gguf, Strings},
};

/// A part of a text.
pub(super) enum Fragment<'t> {
    /// The id of a special token.
    Token(u32),
    /// Non-empty ordinary text.
    Text(&'t str),
}

/// Finds the special tokens of a vocabulary in texts.
pub(super) struct SpecialFinder {
    /// Control, unknown and user-defined tokens.
    all: TokenMatcher,
    /// User-defined tokens only.
    user_defined: TokenMatcher,
    /// The tokens after which white space is removed.
    strips_after: HashSet<u32>,
}

/// Searches texts for a set of tokens.
struct TokenMatcher {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

/// A special token at a range of bytes in a text.
#[derive(Clone, Copy)]
struct TokenMatch {
    start: usize,
    end: usize,
    id: u32,
}

/// Models with tokenizers that remove white space after special tokens (`rstrip` in
/// `tokenizer.json`), for which GGUF has no key: parts of `general.name` in lower case, and the
/// exempt tokens.
const STRIPS_AFTER: &[(&[&str], &[&str])] = &[(&["phi-3", "phi3"], &["<unk>", "<s>", "<|endoftext|>"])];

impl SpecialFinder {
    /// Returns the finder of a vocabulary's special tokens; `tokens` are the texts of all tokens.
    pub fn from_gguf(gguf: &Gguf, tokens: &Strings, vocabulary: &Vocabulary) -> Result<Self> {
        let special = |includes: fn(TokenType) -> bool| {
            let tokens = (0..).zip(tokens.iter()).zip(vocabulary.types());
            tokens.filter(move |((_, text), kind)| includes(**kind) && !text.is_empty()).map(|(token, _)| token)
        };
        let all = |kind: TokenType| kind.is_special() || kind == TokenType::UserDefined;
        let name = gguf.str("general.name")?.unwrap_or_default().to_lowercase();
        let row = STRIPS_AFTER.iter().find(|(names, _)| names.iter().any(|part| name.contains(part)));
        let strips_after =
            row.map(|(_, exempt)| special(all).filter(|(_, text)| !exempt.contains(text)).map(|(id, _)| id));
        Ok(Self {
            all: TokenMatcher::new(special(all))?,
            user_defined: TokenMatcher::new(special(|kind| kind == TokenType::UserDefined))?,
            strips_after: strips_after.map(Iterator::collect).unwrap_or_default(),
        })
    }

    /// Calls `each` with every fragment of a text, in order.
    pub fn split<'t>(
        &self,
        text: &'t str,
        special: SpecialScope<'_>,
        each: impl FnMut(Fragment<'t>) -> Result<()>,
    ) -> Result<()> {
        match special {
            SpecialScope::Everywhere => self.emit(text, self.all.matches(text), each),
            SpecialScope::Nowhere => self.emit(text, self.user_defined.matches(text), each),
            SpecialScope::Outside(ranges) => self.emit(text, self.mixed(text, &masked(text, ranges)), each),
        }
    }

    /// Returns the special tokens of a text: all kinds in the unmasked bytes of `masked`, and
    /// user-defined ones elsewhere.
    fn mixed(&self, text: &str, masked: &[u8]) -> impl Iterator<Item = TokenMatch> {
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

    /// Calls `each` with the tokens and the text between them.
    fn emit<'t>(
        &self,
        text: &'t str,
        tokens: impl Iterator<Item = TokenMatch>,
        mut each: impl FnMut(Fragment<'t>) -> Result<()>,
    ) -> Result<()> {
        let mut start = 0;
        for found in tokens {
            // Removed white space may overlap this token, if it begins with white space.
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

/// Returns the bytes of a text, with the bytes of the ranges replaced by 0xFF, which no text
/// contains.
pub(super) fn masked(text: &str, ranges: &[Range<usize>]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for range in ranges {
        bytes[range.clone()].fill(0xFF);
    }
    bytes
}

/// Returns whether `isspace` of C's default locale holds, by which llama.cpp removes white space.
fn is_c_space(char: char) -> bool {
    matches!(char, ' ' | '\t'..='\r')
}

impl TokenMatcher {
    fn new<'t>(tokens: impl Iterator<Item = (u32, &'t str)>) -> Result<Self> {
        let (ids, texts): (Vec<u32>, Vec<&str>) = tokens.unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|e| Error::Tokenizer(format!("the special tokens cannot be searched for: {e}")))?;
        Ok(Self { automaton, ids })
    }

    fn matches(&self, text: &str) -> impl Iterator<Item = TokenMatch> {
        self.automaton.find_iter(text).map(|found| self.found(found))
    }

    /// Returns the first token at or after an offset.
    fn next(&self, bytes: &[u8], from: usize) -> Option<TokenMatch> {
        self.automaton.find(Input::new(bytes).range(from..)).map(|found| self.found(found))
    }

    fn found(&self, found: aho_corasick::Match) -> TokenMatch {
        TokenMatch { start: found.start(), end: found.end(), id: self.ids[found.pattern().as_usize()] }
    }
}
