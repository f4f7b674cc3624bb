//! Escapes special tokens in untrusted ranges by replacing the trusted ones with placeholder tokens
//! before the `tokenizers` crate sees the text.
//!
//! The crate recognizes either all special tokens or none, which is a setting. Therefore a
//! tokenizer that recognizes none gets additional tokens: one placeholder for each special token,
//! with the same properties. Trusted special tokens are written as placeholders.

use std::{collections::HashMap, ops::Range};

use aho_corasick::{AhoCorasick, Match, MatchKind};
use tokenizers::AddedToken;

use super::json::HfTokenizer;
use crate::{
    error::{Error, Result},
    tokenizer::special::masked,
};

/// The first character of every placeholder, which Unicode guarantees never to be a character.
const MARK: char = '\u{10FFFF}';

/// The first code of the second character, which is of private use.
const FIRST_CODE: u32 = 0x10_0000;

/// Number of codes for the second character.
const CODES: usize = 0xFFFE;

/// A tokenizer with a placeholder for each special token.
pub(super) struct Placeholders {
    tokenizer: HfTokenizer,
    special: AhoCorasick,
    /// The placeholder of each pattern of `special`.
    texts: Vec<String>,
    /// Special tokens by the ids of their placeholders.
    ids: HashMap<u32, u32>,
    /// Whether normalization may turn other texts into special tokens.
    normalizes: bool,
}

impl Placeholders {
    /// Returns the placeholders of the tokenizer `parsing`; `plain` is a copy of it that treats
    /// special tokens as text.
    pub fn new(parsing: &HfTokenizer, mut plain: HfTokenizer) -> Result<Self, String> {
        let added = parsing.get_added_tokens_decoder();
        let mut special: Vec<(u32, &AddedToken)> = added.iter().map(|(&id, token)| (id, token)).collect();
        special.retain(|(_, token)| token.special && !token.content.is_empty());
        special.sort_unstable_by_key(|(id, _)| *id);
        if special.len() > CODES {
            return Err(format!("it has {} special tokens, more than {CODES}", special.len()));
        }
        let normalizes = special.iter().any(|(_, token)| token.normalized) && parsing.get_normalizer().is_some();
        let texts: Vec<String> = (FIRST_CODE..).zip(&special).map(|(code, _)| placeholder(code)).collect();
        let tokens = special.iter().zip(&texts).map(|((_, token), text)| AddedToken {
            content: text.clone(),
            special: false,
            ..(*token).clone()
        });
        plain.add_tokens(tokens).map_err(|e| e.to_string())?;
        let id_of = |text: &String| plain.token_to_id(text).ok_or("a placeholder token has no id".to_owned());
        let ids =
            special.iter().zip(&texts).map(|((id, _), text)| Ok((id_of(text)?, *id))).collect::<Result<_, String>>()?;
        let special = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(special.iter().map(|(_, token)| &token.content))
            .map_err(|e| e.to_string())?;
        Ok(Self { tokenizer: plain, special, texts, ids, normalizes })
    }

    /// Returns the tokenizer for texts with placeholders.
    pub fn tokenizer(&self) -> &HfTokenizer {
        &self.tokenizer
    }

    /// Returns the text with placeholders for the special tokens that have no byte in one of the
    /// ranges; `None` if no special token overlaps a range, so that the text needs no placeholders.
    pub fn insert(&self, text: &str, ranges: &[Range<usize>]) -> Result<Option<String>> {
        let trusted: Vec<Match> = self.special.find_iter(&masked(text, ranges)).collect();
        if !self.normalizes && self.special.find_iter(text).eq(trusted.iter().copied()) {
            return Ok(None);
        }
        if text.contains(MARK) {
            return Err(Error::Tokenizer("the text contains U+10FFFF, which is not a character: remove it".to_owned()));
        }
        let (mut result, mut start) = (String::with_capacity(text.len()), 0);
        for found in trusted {
            result.push_str(&text[start..found.start()]);
            result.push_str(&self.texts[found.pattern().as_usize()]);
            start = found.end();
        }
        Ok(Some(result + &text[start..]))
    }

    /// Replaces the ids of placeholders by the ids of their special tokens.
    pub fn restore(&self, mut ids: Vec<u32>) -> Vec<u32> {
        for id in &mut ids {
            *id = self.ids.get(id).copied().unwrap_or(*id);
        }
        ids
    }
}

fn placeholder(code: u32) -> String {
    [MARK].into_iter().chain(char::from_u32(code)).collect()
}
