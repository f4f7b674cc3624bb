//! Reads calls of gpt-oss: messages with a recipient, whose content is the arguments as JSON.

use super::json;
#[cfg(feature = "constrained")]
use crate::chat::{Tool, answer::call_grammar::GrammarWriter};
use crate::chat::{
    ToolCall,
    answer::{
        call_format::{CallEnd, CallFormat},
        harmony::{MESSAGE, recipient},
    },
};

pub(super) const FORMAT: CallFormat = CallFormat {
    template_marks: &[&["<|channel|>", "<|message|>", "to=functions."]],
    open: "to=functions.",
    unmarked: None,
    quotes: &[],
    end: CallEnd::Mark("<|call|>"),
    separators: &[],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| call(text),
    #[cfg(feature = "constrained")]
    write,
};

/// Parses a message: its header, the mark after it and its content.
fn call(text: &str) -> Result<Vec<ToolCall>, String> {
    let (header, content) = text.split_once(MESSAGE).ok_or("has no arguments")?;
    let name = recipient(header).ok_or("has no recipient")?;
    let content = if content.trim().is_empty() { "{}" } else { content };
    Ok(vec![ToolCall::new(name, json::arguments_object(content)?)])
}

/// Refuses a choice of tools: whether a message is a call is written in its header, before which
/// other messages stand.
#[cfg(feature = "constrained")]
fn write(_: &mut GrammarWriter<'_>, _: &[&Tool], _: bool) -> Result<String, String> {
    Err("cannot be required of models with messages in channels (gpt-oss): leave out the tool choice".into())
}
