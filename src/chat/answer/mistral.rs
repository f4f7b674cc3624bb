//! Mistral's calls: after `[TOOL_CALLS]` a list of them, or since 2025 one call as its name and its arguments.

use super::form::Shape;
use super::json;
use super::scan::{DOUBLE, Ends, Quote};
use crate::chat::ToolCall;

pub(super) const SHAPE: Shape = Shape {
    shown_by: &["[TOOL_CALLS]"],
    open: "[TOOL_CALLS]",
    bare: None,
    // The marks within a call are no brackets.
    quotes: &[
        DOUBLE,
        Quote { open: ARGS, close: "", escapes: false },
        Quote { open: CALL_ID, close: "", escapes: false },
    ],
    ends: Ends::Brackets,
    between: &[],
    ends_thought: false,
    parse: |text, _| calls(text),
};

const ARGS: &str = "[ARGS]";
const CALL_ID: &str = "[CALL_ID]";

fn calls(text: &str) -> Result<Vec<ToolCall>, String> {
    if text.trim_start().starts_with('[') {
        return json::calls(text);
    }
    let brace = text.find('{').ok_or("has no arguments")?;
    let (head, arguments) = text.split_at(brace);
    let head = head.trim_end().strip_suffix(ARGS).unwrap_or(head);
    let (name, id) = head.split_once(CALL_ID).map_or((head, None), |(name, id)| (name, Some(id.trim().to_owned())));
    let call = ToolCall::new(name.trim(), json::object(arguments)?);
    Ok(vec![ToolCall { id, ..call }])
}
