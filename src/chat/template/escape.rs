//! Escapes special tokens in the texts of a conversation, so that only the template can write them.
//!
//! A template mixes its own text with the conversation's, and cuts, trims and compares it on the
//! way. Therefore texts of the conversation are tainted character by character: each character with
//! which a special token begins or ends is replaced by a character of private use that occurs
//! nowhere else, and replaced back in the rendered prompt. A special token that overlaps one of
//! these places is text. A literal that the template searches for (`</think>`) keeps its characters
//! if it cannot be a part of a special token.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use aho_corasick::{AhoCorasick, MatchKind};
use minijinja::value::{Value, ValueKind};

use super::{error::template_error, symbols::TemplateSymbols};
use crate::error::{Error, Result};

/// The characters of private use that stand in for escaped characters: the last plane.
const PRIVATE_USE: Range<u32> = 0x10_0000..0x10_FFFE;

/// Replaces characters of a conversation, and restores them in the rendered prompt.
pub(super) struct Escaper<'s> {
    symbols: &'s TemplateSymbols,
    /// The first and last characters of all special tokens.
    edges: BTreeSet<char>,
    /// Texts that become special tokens if a template writes punctuation around them: `s` of `<s>`.
    cores: BTreeSet<&'s str>,
    /// The template's literals that contain an edge and cannot be a part of a special token.
    kept: AhoCorasick,
    /// The replacement of each character.
    private: BTreeMap<char, char>,
}

impl<'s> Escaper<'s> {
    /// Returns the escaper for a template, the special tokens of a vocabulary, and the values of a
    /// conversation.
    pub fn new(symbols: &'s TemplateSymbols, tokens: &[&'s str], values: &[&Value]) -> Result<Self> {
        let edges: BTreeSet<char> =
            tokens.iter().flat_map(|token| token.chars().next().into_iter().chain(token.chars().last())).collect();
        let cores: BTreeSet<&str> = tokens.iter().flat_map(|token| cores(token)).collect();
        let kept = symbols.literals.iter().filter(|text| text.contains(|char| edges.contains(&char)));
        let kept = kept.filter(|text| !tokens.iter().any(|token| may_share(text, token)));
        let kept = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(kept);
        let kept = kept.map_err(|e| Error::ChatTemplate(format!("its string literals cannot be searched for: {e}")))?;
        let mut used = BTreeSet::new();
        values.iter().try_for_each(|value| collect_private(value, &mut used)).map_err(template_error)?;
        used.extend(symbols.literals.iter().flat_map(|text| text.chars()));
        let mut free = PRIVATE_USE.filter_map(char::from_u32).filter(|char| !used.contains(char));
        let swapped = edges.iter().copied().chain(cores.iter().filter_map(|text| text.chars().next()));
        let private = swapped.collect::<BTreeSet<char>>().into_iter().map(|char| Some((char, free.next()?)));
        let private = private.collect::<Option<_>>().ok_or_else(|| {
            Error::ChatTemplate(
                "the conversation uses all characters of private use (U+100000 to U+10FFFD): remove some".to_owned(),
            )
        })?;
        Ok(Self { symbols, edges, cores, kept, private })
    }

    /// Returns the messages with escaped texts. Roles stay as they are, because the program sets
    /// them.
    pub fn escape_messages(&self, messages: &Value) -> Result<Value, minijinja::Error> {
        let escape = |message: Value| {
            let entry = |key: Value| {
                let value = message.get_item(&key)?;
                let value = if key.as_str() == Some("role") { value } else { self.escape(&value)? };
                Ok((key, value))
            };
            let entries: Vec<(Value, Value)> =
                message.try_iter()?.map(entry).collect::<Result<_, minijinja::Error>>()?;
            Ok(Value::from_pairs(entries))
        };
        Ok(Value::from(messages.try_iter()?.map(escape).collect::<Result<Vec<_>, minijinja::Error>>()?))
    }

    /// Returns a value of the conversation with escaped texts.
    pub fn escape(&self, value: &Value) -> Result<Value, minijinja::Error> {
        Ok(match value.kind() {
            ValueKind::String => Value::from(self.escape_text(value.as_str().unwrap_or_default())),
            ValueKind::Seq | ValueKind::Iterable => {
                Value::from(value.try_iter()?.map(|item| self.escape(&item)).collect::<Result<Vec<_>, _>>()?)
            }
            ValueKind::Map => {
                let entry = |key: Value| Ok((self.escape(&key)?, self.escape(&value.get_item(&key)?)?));
                let entries: Vec<(Value, Value)> =
                    value.try_iter()?.map(entry).collect::<Result<_, minijinja::Error>>()?;
                Value::from_pairs(entries)
            }
            _ => value.clone(),
        })
    }

    fn escape_text(&self, text: &str) -> String {
        let trimmed = text.trim();
        if self.cores.contains(trimmed) && !self.symbols.literals.contains(trimmed) {
            let first = text.len() - text.trim_start().len();
            let private = trimmed.chars().next().and_then(|char| self.private.get(&char));
            let length = trimmed.chars().next().map_or(0, char::len_utf8);
            return [&text[..first], &private.map(char::to_string).unwrap_or_default(), &text[first + length..]]
                .concat();
        }
        let swap = |char: char| self.private.get(&char).filter(|_| self.edges.contains(&char)).copied().unwrap_or(char);
        let (mut escaped, mut start) = (String::with_capacity(text.len()), 0);
        for kept in self.kept.find_iter(text) {
            escaped.extend(text[start..kept.start()].chars().map(swap));
            escaped.push_str(&text[kept.range()]);
            start = kept.end();
        }
        escaped.extend(text[start..].chars().map(swap));
        escaped
    }

    /// Restores the characters of a rendered prompt. Returns the prompt, and the byte ranges of the
    /// restored characters, which special tokens must not overlap.
    pub fn unescape(&self, mut rendered: String) -> (String, Vec<Range<usize>>) {
        let originals: BTreeMap<char, char> =
            self.private.iter().map(|(&original, &private)| (private, original)).collect();
        // `tojson` writes them as escapes if the template sets `ensure_ascii`.
        for &private in originals.keys() {
            let escaped: String =
                private.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
            if rendered.contains(&escaped) {
                rendered = rendered.replace(&escaped, &private.to_string());
            }
        }
        let mut ranges: Vec<Range<usize>> = vec![];
        let mut text = String::with_capacity(rendered.len());
        for char in rendered.chars() {
            let Some(&original) = originals.get(&char) else {
                text.push(char);
                continue;
            };
            let start = text.len();
            text.push(original);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = text.len(),
                _ => ranges.push(start..text.len()),
            }
        }
        (text, ranges)
    }
}

/// Adds the characters of private use in a value to `used`.
fn collect_private(value: &Value, used: &mut BTreeSet<char>) -> Result<(), minijinja::Error> {
    if let Some(text) = value.as_str() {
        used.extend(text.chars().filter(|&char| PRIVATE_USE.contains(&u32::from(char))));
    } else if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        for item in value.try_iter()? {
            collect_private(&item, used)?;
            if value.kind() == ValueKind::Map {
                collect_private(&value.get_item(&item)?, used)?;
            }
        }
    }
    Ok(())
}

/// Returns a token without some or all of the punctuation at its start and at its end.
fn cores(token: &str) -> impl Iterator<Item = &str> {
    let word = |char: char| char.is_alphanumeric();
    let starts = token.char_indices().take_while(move |(_, char)| !word(*char)).map(|(at, char)| at + char.len_utf8());
    let ends = move || token.char_indices().rev().take_while(move |(_, char)| !word(*char)).map(|(at, _)| at);
    starts.flat_map(move |start| ends().filter_map(move |end| token.get(start..end))).filter(|text| !text.is_empty())
}

/// Returns whether `text` and `token` can overlap in some longer text.
fn may_share(text: &str, token: &str) -> bool {
    let overlap =
        |left: &str, right: &str| (1..left.len()).any(|at| left.get(at..).is_some_and(|end| right.starts_with(end)));
    text.contains(token) || token.contains(text) || overlap(text, token) || overlap(token, text)
}
