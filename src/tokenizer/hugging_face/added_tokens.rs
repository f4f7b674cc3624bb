//! Reads the added tokens of a `tokenizer.json`, and removes them from the text.
//!
//! The `tokenizers` crate normalizes added tokens while it reads them, without the limit of our
//! normalizer. Therefore it reads the text without them.

use std::ops::Range;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Deserializer;
use tokenizers::AddedToken;

const KEY: &str = "added_tokens";

#[derive(Deserialize)]
struct Token {
    /// Required, but not used: the crate assigns ids in the order of the file.
    #[serde(rename = "id")]
    _id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// Returns the text of a `tokenizer.json` with an empty list of added tokens, and the tokens. The
/// rest of the text keeps its lines and columns, which errors name.
///
/// # Errors
/// A message about a key or an added token that is invalid.
pub(super) fn take_added_tokens(json: &str) -> Result<(String, Vec<AddedToken>), String> {
    let (mut rest, mut end, mut tokens) = (String::with_capacity(json.len()), 0, Vec::new());
    let mut values = values(json)?;
    // The crate refuses values that are not arrays.
    values.retain(|value| json[value.clone()].starts_with('['));
    for value in &values {
        rest += &json[end..value.start];
        rest += "[";
        rest.extend(blank(&json[value.start + 1..value.end - 1]));
        rest += "]";
        end = value.end;
    }
    rest += &json[end..];
    // The last one counts, as everywhere in this file.
    if let Some(value) = values.pop() {
        tokens = tokens_in(json, value)?;
    }
    Ok((rest, tokens))
}

/// Reads the added tokens in a range of the text.
fn tokens_in(json: &str, value: Range<usize>) -> Result<Vec<AddedToken>, String> {
    let padded: String = blank(&json[..value.start]).chain(json[value].chars()).collect();
    let tokens: Vec<Token> = serde_json::from_str(&padded).map_err(|e| format!("`{KEY}`: {e}"))?;
    Ok(tokens.into_iter().map(|token| token.token).collect())
}

/// Returns a space for each byte of a text, except for line breaks.
fn blank(text: &str) -> impl Iterator<Item = char> {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })
}

/// Returns the ranges of the values of [`KEY`] in a JSON object; none if the JSON is no object.
fn values(json: &str) -> Result<Vec<Range<usize>>, String> {
    let mut values = Vec::new();
    let Some(mut rest) = json.trim_start().strip_prefix('{') else { return Ok(values) };
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        if rest.starts_with('}') {
            return Ok(values);
        }
        let invalid = || format!("its key or value at byte {} is invalid", json.len() - rest.len());
        let (key, after_key) = next::<String>(rest).ok_or_else(invalid)?;
        let value = after_key.trim_start_matches([' ', '\t', '\r', '\n', ':']);
        let (_, after_value) = next::<IgnoredAny>(value).ok_or_else(invalid)?;
        if key == KEY {
            values.push(json.len() - value.len()..json.len() - after_value.len());
        }
        rest = after_value;
    }
}

/// Reads the JSON value at the start of a text; returns it and the text behind it.
fn next<'t, T: Deserialize<'t>>(json: &'t str) -> Option<(T, &'t str)> {
    let mut values = Deserializer::from_str(json).into_iter();
    let value = values.next()?.ok()?;
    Some((value, &json[values.byte_offset()..]))
}
