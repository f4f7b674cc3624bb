//! A text and where its special tokens do not count in; a text for the `tokenizers` crate out.
//!
//! The crate takes all special tokens for what they are, or none: that is a setting. So a tokenizer that takes none gets
//! other tokens to know, one for each special one and with its habits, and the special tokens that do count are written
//! as these.

use std::{collections::HashMap, ops::Range};

use aho_corasick::{AhoCorasick, Match, MatchKind};
use tokenizers::AddedToken;

use super::json::Tokenizer;
use crate::{
    error::{Error, Result},
    tokenizer::special::masked,
};

/// Begins every stand-in. Unicode keeps it from ever being a character.
const MARK: char = '\u{10FFFF}';

/// The characters that follow it are of private use, and this many.
const FIRST: u32 = 0x10_0000;
const COUNT: usize = 0xFFFE;

pub(super) struct StandIns {
    tokenizer: Tokenizer,
    special: AhoCorasick,
    /// The stand-in of each special token that is searched for.
    texts: Vec<String>,
    /// The special token that each stand-in's id stands for.
    ids: HashMap<u32, u32>,
    /// Whether other texts may become special tokens by being normalised.
    normalizes: bool,
}

impl StandIns {
    /// Of the tokenizer `parsing`; `plain` is the same, taking special tokens for ordinary text.
    pub fn new(parsing: &Tokenizer, mut plain: Tokenizer) -> Result<Self, String> {
        let added = parsing.get_added_tokens_decoder();
        let mut special: Vec<(u32, &AddedToken)> = added.iter().map(|(&id, token)| (id, token)).collect();
        special.retain(|(_, token)| token.special && !token.content.is_empty());
        special.sort_unstable_by_key(|(id, _)| *id);
        if special.len() > COUNT {
            return Err(format!("it has {} special tokens, more than {COUNT}", special.len()));
        }
        let normalizes = special.iter().any(|(_, token)| token.normalized) && parsing.get_normalizer().is_some();
        let texts: Vec<String> = (FIRST..).zip(&special).map(|(code, _)| stand_in(code)).collect();
        let tokens = special.iter().zip(&texts).map(|((_, token), text)| AddedToken {
            content: text.clone(),
            special: false,
            ..(*token).clone()
        });
        plain.add_tokens(tokens).map_err(|e| e.to_string())?;
        let stand_in = |text: &String| plain.token_to_id(text).ok_or("a stand-in has no id".to_owned());
        let ids = special
            .iter()
            .zip(&texts)
            .map(|((id, _), text)| Ok((stand_in(text)?, *id)))
            .collect::<Result<_, String>>()?;
        let special = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(special.iter().map(|(_, token)| &token.content))
            .map_err(|e| e.to_string())?;
        Ok(Self { tokenizer: plain, special, texts, ids, normalizes })
    }

    /// What encodes texts with stand-ins.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The text with stand-ins for its special tokens but for those with a byte in one of the ranges. `None` where there can be
    /// none of those, so that the text is right as it is.
    pub fn put_in(&self, text: &str, ranges: &[Range<usize>]) -> Result<Option<String>> {
        let counting: Vec<Match> = self.special.find_iter(&masked(text, ranges)).collect();
        if !self.normalizes && self.special.find_iter(text).eq(counting.iter().copied()) {
            return Ok(None);
        }
        if text.contains(MARK) {
            return Err(Error::Tokenizer("the text holds U+10FFFF, which is no character".to_owned()));
        }
        let (mut result, mut start) = (String::with_capacity(text.len()), 0);
        for found in counting {
            result.push_str(&text[start..found.start()]);
            result.push_str(&self.texts[found.pattern().as_usize()]);
            start = found.end();
        }
        Ok(Some(result + &text[start..]))
    }

    /// The ids with the special tokens in the place of their stand-ins.
    pub fn take_out(&self, mut ids: Vec<u32>) -> Vec<u32> {
        for id in &mut ids {
            *id = self.ids.get(id).copied().unwrap_or(*id);
        }
        ids
    }
}

fn stand_in(code: u32) -> String {
    [MARK].into_iter().chain(char::from_u32(code)).collect()
}
