//! Reads and writes calls of DeepSeek-V3 and R1 and of Kimi K2: calls with marks of their own
//! within a section of calls.

use serde_json::{Deserializer, Map, Value};

#[cfg(feature = "constrained")]
use crate::chat::{
    Tool,
    answer::call_grammar::{Dialect, GrammarWriter, each_tool, is_name, literal, refuse_name_unless, repeated_calls},
};
use crate::chat::{
    ToolCall,
    answer::{
        call_format::{CallEnd, CallFormat, DOUBLE},
        cursor::CallCursor,
    },
};

pub(super) const DEEP_SEEK: CallFormat = CallFormat {
    template_marks: &[&["<｜tool▁calls▁begin｜>"]],
    open: "<｜tool▁calls▁begin｜>",
    unmarked: None,
    quotes: &[DOUBLE],
    end: CallEnd::Mark("<｜tool▁calls▁end｜>"),
    separators: &[],
    inner: &["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"],
    ends_reasoning: true,
    parse: |text, _| calls(text, &DEEP_SEEK, deep_seek_call),
    #[cfg(feature = "constrained")]
    write: |writer, tools, parallel| write(writer, tools, parallel, &DEEP_SEEK, deep_seek_parts),
};

pub(super) const KIMI_K2: CallFormat = CallFormat {
    template_marks: &[&["<|tool_calls_section_begin|>"]],
    open: "<|tool_calls_section_begin|>",
    unmarked: None,
    quotes: &[DOUBLE],
    end: CallEnd::Mark("<|tool_calls_section_end|>"),
    separators: &[],
    inner: &["<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"],
    ends_reasoning: true,
    parse: |text, _| calls(text, &KIMI_K2, kimi_call),
    #[cfg(feature = "constrained")]
    write: |writer, tools, parallel| write(writer, tools, parallel, &KIMI_K2, kimi_parts),
};

/// The fence of the arguments of a DeepSeek-V3 call.
const FENCE: &str = "```";
/// The text before the name in the id of a call of Kimi K2.
const FUNCTIONS: &str = "functions.";

/// Parses the calls of a section. `call` reads a call whose text before the second mark it gets, up
/// to the third mark.
fn calls(
    text: &str,
    format: &CallFormat,
    call: fn(&str, &mut CallCursor<'_>) -> Result<ToolCall, String>,
) -> Result<Vec<ToolCall>, String> {
    let &[begin, separator, end] = format.inner else { return Err("has other marks than its section".into()) };
    let mut cursor = CallCursor::new(text);
    let mut calls = vec![];
    while !cursor.rest.trim_start().is_empty() {
        cursor.expect(begin)?;
        let head = cursor.until(separator)?;
        calls.push(call(head.trim(), &mut cursor)?);
        cursor.expect(end)?;
    }
    Ok(calls)
}

/// Reads `name<sep>arguments`, or a type, the mark, the name and fenced arguments.
fn deep_seek_call(head: &str, cursor: &mut CallCursor<'_>) -> Result<ToolCall, String> {
    if cursor.rest.trim_start().starts_with('{') {
        return Ok(ToolCall::new(head, arguments(cursor)?));
    }
    let name = cursor.until("\n")?.trim();
    cursor.expect(FENCE)?;
    _ = cursor.eat("json");
    let arguments = arguments(cursor)?;
    cursor.expect(FENCE)?;
    Ok(ToolCall::new(name, arguments))
}

/// Reads the arguments of a call whose id has its name: `functions.name:0`.
fn kimi_call(id: &str, cursor: &mut CallCursor<'_>) -> Result<ToolCall, String> {
    let name = id.strip_prefix(FUNCTIONS).unwrap_or(id);
    let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
    let call = ToolCall::new(name, arguments(cursor)?);
    Ok(ToolCall { id: Some(id.to_owned()), ..call })
}

/// Reads a JSON object.
fn arguments(cursor: &mut CallCursor<'_>) -> Result<Map<String, Value>, String> {
    let mut values = Deserializer::from_str(cursor.rest).into_iter::<Map<String, Value>>();
    let arguments = values.next().ok_or("has no arguments")?;
    let arguments = arguments.map_err(|e| format!("has arguments that are not a JSON object ({e})"))?;
    cursor.rest = &cursor.rest[values.byte_offset()..];
    Ok(arguments)
}

/// Writes the grammar of a section. `parts` returns the expression of a call between its first and
/// its last mark, of the expression of the second mark, the name and the expression of the
/// arguments.
#[cfg(feature = "constrained")]
fn write(
    writer: &mut GrammarWriter<'_>,
    tools: &[&Tool],
    parallel: bool,
    format: &CallFormat,
    parts: fn(&str, &str, &str) -> String,
) -> Result<String, String> {
    let &[begin, separator, end] = format.inner else { return Err("has other marks than its section".into()) };
    let [begin, separator, end] = [begin, separator, end].map(|mark| writer.mark(mark));
    let call = each_tool(writer, tools, |values, tool| {
        refuse_name_unless(is_name(&tool.name))?;
        let arguments = values.object_arguments(Dialect::Json)?;
        Ok(format!("{begin} ({}) {end}", parts(&separator, &tool.name, &arguments)))
    })?;
    let calls = repeated_calls(&call, "\"\\n\"?", parallel);
    Ok(writer.rule(format!("{calls} {}", writer.mark(format.close()))))
}

/// Writes both variants of a call of DeepSeek, between which the model chooses.
#[cfg(feature = "constrained")]
fn deep_seek_parts(separator: &str, name: &str, arguments: &str) -> String {
    let (fenced, fence) = (literal(&format!("{name}\n{FENCE}json\n")), literal(&format!("\n{FENCE}")));
    format!("\"function\" {separator} {fenced} {arguments} {fence} | {} {separator} {arguments}", literal(name))
}

#[cfg(feature = "constrained")]
fn kimi_parts(separator: &str, name: &str, arguments: &str) -> String {
    format!("{} /[0-9]{{1,3}}/ {separator} {arguments}", literal(&format!("{FUNCTIONS}{name}:")))
}
