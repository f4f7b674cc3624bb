//! Sets the white space of the `%json` blocks of a Lark grammar.

use serde_json::Value;

use super::{JsonStyle, OPTIONS, translate};
use crate::error::Result;

const KEYWORD: &str = "%json";

/// Returns the grammar with bounded white space in its `%json` blocks, including blocks in nested
/// `%lark` blocks. A block that sets its white space by `x-guidance` keeps it. The number of lines
/// stays the same, so that errors have the right line.
pub fn with_white_space(grammar: &str) -> Result<String> {
    let mut text = String::with_capacity(grammar.len());
    let mut rest = grammar;
    while !rest.is_empty() {
        let (token, after) = rest.split_at(token_length(rest));
        text += token;
        rest = after;
        if token == KEYWORD {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            if let Some(Ok(schema)) = values.next() {
                translate::check_multiples(&schema)?;
                let (block, after) = rest.split_at(values.byte_offset());
                if let Some(translated) = nested(&schema)? {
                    text.truncate(text.len() - KEYWORD.len());
                    text += &translated;
                } else {
                    text += &spaced(&schema, block);
                }
                rest = after;
            }
        }
    }
    Ok(text)
}

/// Returns a schema with integers that llguidance would round as a nested grammar; `None` for other
/// schemas.
fn nested(schema: &Value) -> Result<Option<String>> {
    if !translate::has_wide_integers(schema) {
        return Ok(None);
    }
    let lark = translate::to_lark(schema, translate::SchemaOrigin::Caller, JsonStyle::Spaced)?;
    Ok(Some(format!("%lark {{\n{lark}}}")))
}

/// Returns a block with the options of its white space.
fn spaced(schema: &Value, block: &str) -> String {
    let mut options = JsonStyle::Spaced.options();
    match schema {
        Value::Bool(true) => format!(" {{\"{OPTIONS}\": {options}}}"),
        Value::Object(object) => {
            let end = block.rfind('}').unwrap_or(block.len());
            let Some(own) = object.get(OPTIONS) else {
                let comma = if object.is_empty() { "" } else { "," };
                return format!("{}{comma}\"{OPTIONS}\": {options}{}", &block[..end], &block[end..]);
            };
            let is_set = |key: &str| own.get(key).is_some_and(|value| !value.is_null());
            if is_set("whitespace_pattern") || own.get("whitespace_flexible") == Some(&Value::Bool(false)) {
                return block.into();
            }
            if let (Value::Object(options), Some(own)) = (&mut options, own.as_object()) {
                options.extend(
                    own.iter().filter(|(key, _)| *key != "whitespace_pattern").map(|(k, v)| (k.clone(), v.clone())),
                );
            }
            let mut object = object.clone();
            object.insert(OPTIONS.into(), options);
            let lines = "\n".repeat(block.matches('\n').count());
            let text = Value::Object(object).to_string();
            format!(" {}{lines}}}", &text[..text.len() - 1])
        }
        _ => block.into(),
    }
}

/// Returns the length of the token at the start of a non-empty text: a string, an expression, a
/// comment, a special token, the keyword, or else one character.
fn token_length(text: &str) -> usize {
    let quoted = |end: char| {
        let mut escaped = false;
        let closes = |c: char| {
            let ends = c == end && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        };
        text[1..].find(closes).map_or(text.len(), |at| 1 + at + end.len_utf8())
    };
    let first = text.chars().next().map_or(0, char::len_utf8);
    match text.as_bytes()[0] {
        _ if text.starts_with(KEYWORD) => KEYWORD.len(),
        b'#' => text.find('\n').unwrap_or(text.len()),
        b'/' if text.starts_with("//") => text.find('\n').unwrap_or(text.len()),
        b'"' => quoted('"'),
        b'/' => quoted('/'),
        b'<' => match text[1..].find(|c: char| c == '>' || c == '<' || c.is_whitespace()) {
            Some(at) if text[1 + at..].starts_with('>') => at + 2,
            _ => first,
        },
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: &str = r#""x-guidance": {"whitespace_pattern":"( |\\n {0,32})?"}"#;

    #[test]
    fn json_blocks_get_white_space_and_other_text_stays() {
        let unchanged = [
            "start: \"%json {}\" /%json \\/ {}/ // %json {}\n # %json {}\n<%json>",
            "start: %json {\"x-guidance\": {\"whitespace_flexible\": false}}",
            "start: %json {\"x-guidance\": {\"whitespace_pattern\": \" *\"}}",
            "start: %json {\"type\": ",
            "start: \"ü\\\"",
        ];
        for text in unchanged {
            assert_eq!(with_white_space(text).unwrap(), text);
        }
        let spaced = |text: &str| with_white_space(text).unwrap();
        assert_eq!(spaced("start: %json {}\n"), format!("start: %json {{{PATTERN}}}\n"));
        assert_eq!(spaced("start: %json true"), format!("start: %json {{{PATTERN}}}"));
        let nested = "start: %lark {\nstart: %json {\n\"type\": \"null\"\n} }\nb: \"b\"";
        let expected = format!("start: %lark {{\nstart: %json {{\n\"type\": \"null\"\n,{PATTERN}}} }}\nb: \"b\"");
        assert_eq!(spaced(nested), expected);
        let merged = spaced("start: %json {\"x-guidance\":\n{\"lenient\": true}} | \"b\"");
        assert!(merged.contains(r#""lenient":true"#) && merged.contains("whitespace_pattern"), "{merged}");
        assert_eq!(merged.matches('\n').count(), 1, "{merged}");
    }
}
