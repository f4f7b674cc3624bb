//! Writes grammars of tool calls in llguidance's dialect of Lark.
//!
//! Each format of calls writes its own syntax (`CallFormat::write`). It takes the rules for
//! argument values from here: [`values`] translates a tool's schema, and [`dialect`] writes values
//! in the format's syntax.

mod alternatives;
mod dialect;
mod numbers;
mod values;
mod writer;

use serde_json::json;

pub(crate) use self::writer::SpecialTokenIds;
pub(super) use self::{
    dialect::{Dialect, NAME},
    values::{FieldSyntax, ValueRules},
    writer::{ANY, GrammarWriter, escaped, lacks, literal},
};
use super::cursor::is_name_char;
use crate::chat::Tool;

/// Writes the grammar of calls of the given tools after the mark before the first call, and returns
/// its start expression. The flag says whether there may be several calls.
pub(super) type WriteCalls = fn(&mut GrammarWriter<'_>, &[&Tool], bool) -> Result<String, String>;

/// Returns the expression of a call of one of the tools; `write` writes the call of one tool.
pub(super) fn each_tool(
    writer: &mut GrammarWriter<'_>,
    tools: &[&Tool],
    write: impl Fn(&mut ValueRules<'_, '_>, &Tool) -> Result<String, String>,
) -> Result<String, String> {
    let mut calls = vec![];
    for tool in tools {
        let any = json!({});
        let schema = if tool.parameters.is_null() { &any } else { &tool.parameters };
        let call = write(&mut ValueRules::new(writer, schema), tool);
        calls.push(call.map_err(|what| format!("the tool `{}` {what}", tool.name.escape_debug()))?);
    }
    Ok(writer.rule(calls.join(" | ")))
}

/// Returns an error unless a format can write the name of a tool.
pub(super) fn refuse_name_unless(writable: bool) -> Result<(), String> {
    let refused = || "has a name that the model's call format cannot write: rename it".to_owned();
    if writable { Ok(()) } else { Err(refused()) }
}

/// Returns whether the parsers read a text as the name of a function or an argument.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name_char)
}

/// Returns the expression of one call, or of one call and more of them if `parallel`.
pub(super) fn repeated_calls(call: &str, between: &str, parallel: bool) -> String {
    if parallel { format!("{call} ({between} {call})*") } else { call.to_owned() }
}
