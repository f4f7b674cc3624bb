//! Whose words a prompt's are: the template's, whose special tokens count, or the conversation's, whose do not.
//!
//! A template puts both together, and cuts, trims and compares what it is given. So the conversation's texts carry marks
//! through it that it does not notice: characters that special tokens begin or end with are swapped for private ones that
//! occur nowhere else, one for one, and swapped back in what is rendered. A special token that touches one of these is
//! text. What the template itself quotes and looks for (`</think>`) stays as it is where it could not be a part of any special
//! token.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use aho_corasick::{AhoCorasick, MatchKind};
use minijinja::value::{Value, ValueKind};

use super::symbols::Source;
use crate::error::{Error, Result};

/// Where private characters are taken from: the last plane.
const PRIVATE: Range<u32> = 0x10_0000..0x10_FFFE;

/// Swaps a conversation's characters.
pub(super) struct Provenance<'s> {
    source: &'s Source,
    /// The characters that special tokens begin or end with.
    edges: BTreeSet<char>,
    /// Texts that become special tokens within marks that a template may put around them: `s` of `<s>`.
    insides: BTreeSet<&'s str>,
    /// What the template quotes, has an edge in it, and can be no part of a special token.
    kept: AhoCorasick,
    private: BTreeMap<char, char>,
}

impl<'s> Provenance<'s> {
    /// For a vocabulary's special tokens, a template and the values that it is given.
    pub fn new(source: &'s Source, tokens: &[&'s str], values: &[&Value]) -> Result<Self> {
        let edges: BTreeSet<char> =
            tokens.iter().flat_map(|token| token.chars().next().into_iter().chain(token.chars().last())).collect();
        let insides: BTreeSet<&str> = tokens.iter().flat_map(|token| insides(token)).collect();
        let kept = source.literals.iter().filter(|text| text.contains(|char| edges.contains(&char)));
        let kept = kept.filter(|text| !tokens.iter().any(|token| may_share(text, token)));
        let kept = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(kept);
        let kept = kept.map_err(|e| Error::ChatTemplate(format!("what it quotes cannot be searched for: {e}")))?;
        let mut used = BTreeSet::new();
        values.iter().try_for_each(|value| collect_private(value, &mut used)).map_err(super::error)?;
        used.extend(source.literals.iter().flat_map(|text| text.chars()));
        let mut free = PRIVATE.filter_map(char::from_u32).filter(|char| !used.contains(char));
        let swapped = edges.iter().copied().chain(insides.iter().filter_map(|text| text.chars().next()));
        let private = swapped.collect::<BTreeSet<char>>().into_iter().map(|char| Some((char, free.next()?)));
        let private = private
            .collect::<Option<_>>()
            .ok_or_else(|| Error::ChatTemplate("the conversation uses up all characters of private use".to_owned()))?;
        Ok(Self { source, edges, insides, kept, private })
    }

    /// Messages with their texts swapped, but for their roles, which the program gives.
    pub fn hide_messages(&self, messages: &Value) -> Result<Value, minijinja::Error> {
        let hide = |message: Value| {
            let entry = |key: Value| {
                let value = message.get_item(&key)?;
                let value = if key.as_str() == Some("role") { value } else { self.hide(&value)? };
                Ok((key, value))
            };
            let entries: Vec<(Value, Value)> =
                message.try_iter()?.map(entry).collect::<Result<_, minijinja::Error>>()?;
            Ok(Value::from_pairs(entries))
        };
        Ok(Value::from(messages.try_iter()?.map(hide).collect::<Result<Vec<_>, minijinja::Error>>()?))
    }

    /// A value of the conversation with its texts swapped.
    pub fn hide(&self, value: &Value) -> Result<Value, minijinja::Error> {
        Ok(match value.kind() {
            ValueKind::String => Value::from(self.hide_text(value.as_str().unwrap_or_default())),
            ValueKind::Seq | ValueKind::Iterable => {
                Value::from(value.try_iter()?.map(|item| self.hide(&item)).collect::<Result<Vec<_>, _>>()?)
            }
            ValueKind::Map => {
                let entry = |key: Value| Ok((self.hide(&key)?, self.hide(&value.get_item(&key)?)?));
                let entries: Vec<(Value, Value)> =
                    value.try_iter()?.map(entry).collect::<Result<_, minijinja::Error>>()?;
                Value::from_pairs(entries)
            }
            _ => value.clone(),
        })
    }

    fn hide_text(&self, text: &str) -> String {
        let trimmed = text.trim();
        if self.insides.contains(trimmed) && !self.source.literals.contains(trimmed) {
            let first = text.len() - text.trim_start().len();
            let private = trimmed.chars().next().and_then(|char| self.private.get(&char));
            let length = trimmed.chars().next().map_or(0, char::len_utf8);
            return [&text[..first], &private.map(char::to_string).unwrap_or_default(), &text[first + length..]]
                .concat();
        }
        let swap = |char: char| self.private.get(&char).filter(|_| self.edges.contains(&char)).copied().unwrap_or(char);
        let (mut hidden, mut start) = (String::with_capacity(text.len()), 0);
        for kept in self.kept.find_iter(text) {
            hidden.extend(text[start..kept.start()].chars().map(swap));
            hidden.push_str(&text[kept.range()]);
            start = kept.end();
        }
        hidden.extend(text[start..].chars().map(swap));
        hidden
    }

    /// What was rendered with its own characters again, and where those of the conversation are.
    pub fn reveal(&self, mut rendered: String) -> (String, Vec<Range<usize>>) {
        let own: BTreeMap<char, char> = self.private.iter().map(|(&own, &private)| (private, own)).collect();
        // `tojson` may have been asked for ASCII.
        for &private in own.keys() {
            let escaped: String =
                private.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
            if rendered.contains(&escaped) {
                rendered = rendered.replace(&escaped, &private.to_string());
            }
        }
        let mut ranges: Vec<Range<usize>> = vec![];
        let mut text = String::with_capacity(rendered.len());
        for char in rendered.chars() {
            let Some(&own) = own.get(&char) else {
                text.push(char);
                continue;
            };
            let start = text.len();
            text.push(own);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = text.len(),
                _ => ranges.push(start..text.len()),
            }
        }
        (text, ranges)
    }
}

/// The private characters of a value.
fn collect_private(value: &Value, used: &mut BTreeSet<char>) -> Result<(), minijinja::Error> {
    if let Some(text) = value.as_str() {
        used.extend(text.chars().filter(|&char| PRIVATE.contains(&u32::from(char))));
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

/// What is left of a token without some of the marks at its begin and at its end.
fn insides(token: &str) -> impl Iterator<Item = &str> {
    let word = |char: char| char.is_alphanumeric();
    let starts = token.char_indices().take_while(move |(_, char)| !word(*char)).map(|(at, char)| at + char.len_utf8());
    let ends = move || token.char_indices().rev().take_while(move |(_, char)| !word(*char)).map(|(at, _)| at);
    starts.flat_map(move |start| ends().filter_map(move |end| token.get(start..end))).filter(|text| !text.is_empty())
}

/// Whether a place in some text may be a part of both.
fn may_share(text: &str, token: &str) -> bool {
    let ends = |text: &str, of: &str| (1..text.len()).any(|at| text.get(at..).is_some_and(|end| of.starts_with(end)));
    text.contains(token) || token.contains(text) || ends(text, token) || ends(token, text)
}
