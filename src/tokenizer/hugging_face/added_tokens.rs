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

/// Returns the added tokens of a `tokenizer.json`, and leaves an empty list in the text. The rest
/// of the text keeps its lines and columns, which errors name.
///
/// # Errors
/// A message about text that is not a JSON object, or about an added token.
pub(super) fn take_added_tokens(json: &mut String) -> Result<Vec<AddedToken>, String> {
    let Some(mut values) = values(json) else {
        serde_json::from_str::<IgnoredAny>(json).map_err(|e| format!("is not JSON: {e}"))?;
        return Err("is not a JSON object with keys of valid Unicode".to_owned());
    };
    // The crate refuses values that are not arrays.
    values.retain(|value| json[value.clone()].starts_with('['));
    // The last one counts, as everywhere in the file.
    let tokens = values.last().map_or(Ok(Vec::new()), |value| tokens_in(json, value.clone()))?;
    for value in values {
        let inside = value.start + 1..value.end - 1;
        let spaces = blank(&json[inside.clone()]);
        json.replace_range(inside, &spaces);
    }
    Ok(tokens)
}

/// Reads the added tokens in a range of the text.
fn tokens_in(json: &str, value: Range<usize>) -> Result<Vec<AddedToken>, String> {
    let padded = blank(&json[..value.start]) + &json[value];
    let tokens: Vec<Token> = serde_json::from_str(&padded).map_err(|e| format!("`{KEY}`: {e}"))?;
    Ok(tokens.into_iter().map(|token| token.token).collect())
}

/// Returns a space for each byte of a text, except for line breaks.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Returns the ranges of the values of [`KEY`] in a JSON object; `None` if the text is not JSON, is
/// not an object, or has a key that is not valid Unicode.
fn values(json: &str) -> Option<Vec<Range<usize>>> {
    let mut values = Vec::new();
    let mut rest = skip_space(skip_space(json).strip_prefix('{')?);
    let mut more = !rest.starts_with('}');
    while more {
        let (key, after_key) = next::<String>(rest)?;
        let value = skip_space(skip_space(after_key).strip_prefix(':')?);
        let (_, after_value) = next::<IgnoredAny>(value)?;
        if key == KEY {
            values.push(json.len() - value.len()..json.len() - after_value.len());
        }
        rest = skip_space(after_value);
        more = rest.starts_with(',');
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    skip_space(rest.strip_prefix('}')?).is_empty().then_some(values)
}

fn skip_space(json: &str) -> &str {
    json.trim_start_matches([' ', '\t', '\r', '\n'])
}

/// Reads the JSON value at the start of a text; returns it and the text behind it.
fn next<'t, T: Deserialize<'t>>(json: &'t str) -> Option<(T, &'t str)> {
    let mut values = Deserializer::from_str(json).into_iter();
    let value = values.next()?.ok()?;
    Some((value, &json[values.byte_offset()..]))
}
