//! Calls in JSON.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::form::Shape;
use super::scan::{DOUBLE, Ends};
use crate::chat::{Tool, ToolCall};

pub(super) const TAGGED: Shape = Shape {
    shown_by: &["<tool_call>", "\"arguments\""],
    open: "<tool_call>",
    bare: None,
    quotes: &[DOUBLE],
    ends: Ends::Mark("</tool_call>"),
    between: &[],
    ends_thought: false,
    parse: |text, _| calls(text),
};

pub(super) const BARE: Shape = Shape {
    shown_by: &["{\"name\": ", "\"parameters\": "],
    open: "<|python_tag|>",
    bare: Some(begins_call),
    quotes: &[DOUBLE],
    ends: Ends::Brackets,
    between: &[';'],
    ends_thought: false,
    parse: |text, _| calls(text),
};

/// An answer may be JSON and no call: a call names one of the tools first.
fn begins_call(text: &str, tools: &[Tool]) -> Option<bool> {
    let text: String = text.chars().filter(|char| !char.is_whitespace()).take(200).collect();
    let beginnings = ["{\"name\":", "{\"type\":\"function\",\"name\":"];
    let mut whole =
        beginnings.iter().flat_map(|begin| tools.iter().map(move |tool| format!("{begin}\"{}\"", tool.name)));
    if whole.clone().any(|whole| text.starts_with(&whole)) {
        return Some(true);
    }
    if whole.any(|whole| whole.starts_with(&text)) { None } else { Some(false) }
}

/// A call, or a list of calls.
pub(super) fn calls(text: &str) -> Result<Vec<ToolCall>, String> {
    match serde_json::from_str(text).map_err(|e| format!("is not JSON ({e})"))? {
        Value::Array(calls) => calls.into_iter().map(call).collect(),
        value => Ok(vec![call(value)?]),
    }
}

fn call(value: Value) -> Result<ToolCall, String> {
    #[derive(Deserialize)]
    struct Call {
        #[serde(alias = "call_id")]
        id: Option<String>,
        name: String,
        #[serde(alias = "parameters")]
        arguments: Option<Value>,
    }
    let call: Call = serde_json::from_value(value).map_err(|e| format!("is not of the form of a call ({e})"))?;
    let arguments = call.arguments.map_or_else(|| Ok(Map::new()), arguments)?;
    Ok(ToolCall { id: call.id, name: call.name, arguments: arguments.into() })
}

/// Some models write the object into a string.
fn arguments(value: Value) -> Result<Map<String, Value>, String> {
    let inner = match value.as_str() {
        Some(text) => serde_json::from_str(text).map_err(|e| format!("has arguments that are not JSON ({e})"))?,
        None => value,
    };
    match inner {
        Value::Object(arguments) => Ok(arguments),
        _ => Err("has arguments that are no object".to_owned()),
    }
}

/// The arguments of a call whose name stands apart.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("has arguments that are no JSON object ({e})"))
}
