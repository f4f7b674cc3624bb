//! Reads and writes calls as JSON objects.

use serde::Deserialize;
use serde_json::{Map, Value};

#[cfg(feature = "constrained")]
use crate::chat::answer::call_grammar::{
    Dialect, GrammarWriter, each_tool, escaped, literal, refuse_name_unless, repeated_calls,
};
use crate::chat::{
    Tool, ToolCall,
    answer::call_format::{CallEnd, CallFormat, DOUBLE, UnmarkedCall},
};

pub(super) const TAGGED: CallFormat = CallFormat {
    template_marks: &[&["<tool_call>", "\"arguments\""]],
    open: "<tool_call>",
    unmarked: None,
    quotes: &[DOUBLE],
    end: CallEnd::Mark("</tool_call>"),
    separators: &[],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write: write_tagged,
};

pub(super) const UNMARKED: CallFormat = CallFormat {
    template_marks: &[&["{\"name\": ", "\"parameters\": "]],
    open: "<|python_tag|>",
    unmarked: Some(UnmarkedCall {
        begins: begins_call,
        #[cfg(feature = "constrained")]
        expression: call_beginnings,
    }),
    quotes: &[DOUBLE],
    end: CallEnd::Bracket,
    separators: &[';'],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write: write_unmarked,
};

pub(super) const ACTIONS: CallFormat = CallFormat {
    template_marks: &[&["<|START_ACTION|>"]],
    open: "<|START_ACTION|>",
    unmarked: None,
    quotes: &[DOUBLE],
    end: CallEnd::Mark("<|END_ACTION|>"),
    separators: &[],
    inner: &[],
    ends_reasoning: true,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write: write_actions,
};

pub(super) const LIST: CallFormat = CallFormat {
    template_marks: &[&["<|tool_call|>"]],
    open: "<|tool_call|>",
    unmarked: None,
    quotes: &[DOUBLE],
    end: CallEnd::Bracket,
    separators: &[],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write: write_list,
};

/// Returns whether an answer is a call. JSON that does not name one of the tools first is text.
fn begins_call(text: &str, tools: &[Tool]) -> Option<bool> {
    let text: String = text.chars().filter(|char| !char.is_whitespace()).take(200).collect();
    let prefixes = ["{\"name\":", "{\"type\":\"function\",\"name\":"];
    let mut heads =
        prefixes.iter().flat_map(|prefix| tools.iter().map(move |tool| format!("{prefix}\"{}\"", tool.name)));
    if heads.clone().any(|head| text.starts_with(&head)) {
        return Some(true);
    }
    if heads.any(|head| head.starts_with(&text)) { None } else { Some(false) }
}

/// Parses a call or a list of calls.
pub(super) fn calls(text: &str) -> Result<Vec<ToolCall>, String> {
    match serde_json::from_str(text).map_err(|e| format!("is not JSON ({e})"))? {
        Value::Array(calls) => calls.into_iter().map(call).collect(),
        value => Ok(vec![call(value)?]),
    }
}

fn call(value: Value) -> Result<ToolCall, String> {
    #[derive(Deserialize)]
    struct Call {
        #[serde(alias = "call_id", alias = "tool_call_id")]
        id: Option<String>,
        #[serde(alias = "tool_name")]
        name: String,
        #[serde(alias = "parameters")]
        arguments: Option<Value>,
    }
    let call: Call =
        serde_json::from_value(value).map_err(|e| format!("is not an object with a `name` and `arguments` ({e})"))?;
    let arguments = call.arguments.map_or_else(|| Ok(Map::new()), arguments)?;
    Ok(ToolCall { id: call.id, name: call.name, arguments: arguments.into() })
}

/// Returns the arguments, which some models write as a string that contains the object.
fn arguments(value: Value) -> Result<Map<String, Value>, String> {
    let inner = match value.as_str() {
        Some(text) => serde_json::from_str(text).map_err(|e| format!("has arguments that are not JSON ({e})"))?,
        None => value,
    };
    match inner {
        Value::Object(arguments) => Ok(arguments),
        _ => Err("has arguments that are not an object".to_owned()),
    }
}

/// Parses the arguments of a call whose name is written outside of the JSON.
pub(super) fn arguments_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("has arguments that are not a JSON object ({e})"))
}

/// White space between the tokens of a call.
#[cfg(feature = "constrained")]
const SPACE: &str = r"[ \t\r\n]{0,8}";

#[cfg(feature = "constrained")]
fn write_tagged(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let call = write_call(writer, tools)?;
    let (open, close) = (writer.mark(TAGGED.open), writer.mark(TAGGED.close()));
    let closed = writer.rule(format!("\"\\n\"? {call} \"\\n\"? {close}"));
    Ok(repeated_calls(&closed, &format!("\"\\n\"? {open}"), parallel))
}

/// Writes the grammar of one call as a JSON object.
#[cfg(feature = "constrained")]
pub(super) fn write_call(writer: &mut GrammarWriter<'_>, tools: &[&Tool]) -> Result<String, String> {
    each_tool(writer, tools, |values, tool| {
        let head = format!("{{\"name\": {}, \"arguments\": ", Value::from(tool.name.as_str()));
        Ok(format!("{} {} \"}}\"", literal(&head), values.object_arguments(Dialect::Json)?))
    })
}

#[cfg(feature = "constrained")]
fn write_list(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let call = write_call(writer, tools)?;
    Ok(writer.rule(format!("\" \"? \"[\" {} \"]\"", repeated_calls(&call, "/, ?/", parallel))))
}

#[cfg(feature = "constrained")]
fn write_actions(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let call = each_tool(writer, tools, |values, tool| {
        let id = format!("{} /[0-9]{{1,3}}/", literal("{\"tool_call_id\": \""));
        let head = format!("\", \"tool_name\": {}, \"parameters\": ", Value::from(tool.name.as_str()));
        Ok(format!("{id} {} {} \"}}\"", literal(&head), values.object_arguments(Dialect::Json)?))
    })?;
    let calls = repeated_calls(&call, &format!("/,{SPACE}/"), parallel);
    let close = writer.mark(ACTIONS.close());
    Ok(writer.rule(format!("/\\[{SPACE}/ {calls} /{SPACE}\\]/ {close}")))
}

#[cfg(feature = "constrained")]
fn write_unmarked(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
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

/// Returns the regular expression of the texts for which [`begins_call`], which ignores white
/// space, is true.
#[cfg(feature = "constrained")]
fn call_beginnings(tools: &[Tool]) -> String {
    let spaced =
        |text: &str| text.chars().map(|char| escaped(char.encode_utf8(&mut [0; 4]))).collect::<Vec<_>>().join(r"\s*");
    let names: Vec<String> = tools.iter().map(|tool| spaced(&tool.name)).collect();
    let kind = spaced("\"type\":\"function\",");
    format!(r"\s*\{{\s*(?:{kind}\s*)?{}\s*(?:{})\s*\x22", spaced("\"name\":\""), names.join("|"))
}
