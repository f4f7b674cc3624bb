//! Calls in JSON.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::call_format::{Bare, Shape};
#[cfg(feature = "constrained")]
use super::super::call_grammar::{Dialect, Writer, each_tool, escaped, literal, refuse_name_unless, repeated_calls};
use super::super::scanner::{DOUBLE, Ends};
use crate::chat::{Tool, ToolCall};

pub(in crate::chat::answer) const TAGGED: Shape = Shape {
    shown_by: &["<tool_call>", "\"arguments\""],
    open: "<tool_call>",
    bare: None,
    quotes: &[DOUBLE],
    ends: Ends::Mark("</tool_call>"),
    between: &[],
    ends_thought: false,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write: write_tagged,
};

pub(in crate::chat::answer) const BARE: Shape = Shape {
    shown_by: &["{\"name\": ", "\"parameters\": "],
    open: "<|python_tag|>",
    bare: Some(Bare {
        begins: begins_call,
        #[cfg(feature = "constrained")]
        expression: beginnings,
    }),
    quotes: &[DOUBLE],
    ends: Ends::Brackets,
    between: &[';'],
    ends_thought: false,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write: write_bare,
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

/// The white space that may stand between the parts of a call that no mark begins.
#[cfg(feature = "constrained")]
const SPACE: &str = r"[ \t\r\n]{0,4}";

#[cfg(feature = "constrained")]
fn write_tagged(writer: &mut Writer<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let call = write_call(writer, tools)?;
    let (open, close) = (writer.mark(TAGGED.open), writer.mark(TAGGED.close()));
    let one = writer.rule(format!("\"\\n\"? {call} \"\\n\"? {close}"));
    Ok(repeated_calls(&one, &format!("\"\\n\"? {open}"), parallel))
}

/// The expression for one call as a JSON object.
#[cfg(feature = "constrained")]
pub(super) fn write_call(writer: &mut Writer<'_>, tools: &[&Tool]) -> Result<String, String> {
    each_tool(writer, tools, |values, tool| {
        let head = format!("{{\"name\": {}, \"arguments\": ", Value::from(tool.name.as_str()));
        Ok(format!("{} {} \"}}\"", literal(&head), values.object_arguments(Dialect::Json)?))
    })
}

#[cfg(feature = "constrained")]
fn write_bare(writer: &mut Writer<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let call = each_tool(writer, tools, |values, tool| {
        let name = Value::from(tool.name.as_str()).to_string();
        let begins = begins_call(&format!("{{\"name\":{name}"), &[Tool::clone(tool)]);
        refuse_name_unless(begins == Some(true))?;
        let kind = format!("\"type\"{SPACE}:{SPACE}\"function\"{SPACE},{SPACE}");
        let name = format!("\"name\"{SPACE}:{SPACE}{}{SPACE},{SPACE}", escaped(&name));
        let head = format!("/{SPACE}\\{{{SPACE}(?:{kind})?{name}\"parameters\"{SPACE}:{SPACE}/");
        Ok(format!("{head} {} \"}}\"", values.object_arguments(Dialect::Json)?))
    })?;
    Ok(repeated_calls(&call, "\";\"", parallel))
}

/// As [`begins_call`], which leaves white space out of account.
#[cfg(feature = "constrained")]
fn beginnings(tools: &[Tool]) -> String {
    let spaced =
        |text: &str| text.chars().map(|char| escaped(char.encode_utf8(&mut [0; 4]))).collect::<Vec<_>>().join(r"\s*");
    let names: Vec<String> = tools.iter().map(|tool| spaced(&tool.name)).collect();
    let kind = spaced("\"type\":\"function\",");
    format!(r"\s*\{{\s*(?:{kind}\s*)?{}\s*(?:{})\s*\x22", spaced("\"name\":\""), names.join("|"))
}
