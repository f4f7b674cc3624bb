//! Reads and writes Mistral's calls: after `[TOOL_CALLS]` a list of calls or, since 2025, one call
//! as its name and its arguments.

use super::json;
#[cfg(feature = "constrained")]
use crate::chat::{
    Tool,
    answer::call_grammar::{Dialect, GrammarWriter, each_tool, is_name, literal, refuse_name_unless, repeated_calls},
};
use crate::chat::{
    ToolCall,
    answer::call_format::{CallEnd, CallFormat, DOUBLE, Quote},
};

pub(super) const FORMAT: CallFormat = CallFormat {
    template_marks: &[&["[TOOL_CALLS]"]],
    open: "[TOOL_CALLS]",
    unmarked: None,
    // The brackets of these marks do not count as brackets of the call.
    quotes: &[
        DOUBLE,
        Quote { open: ARGS, close: "", escapes: false },
        Quote { open: CALL_ID, close: "", escapes: false },
    ],
    end: CallEnd::Bracket,
    separators: &[],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write,
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
    let call = ToolCall::new(name.trim(), json::arguments_object(arguments)?);
    Ok(vec![ToolCall { id, ..call }])
}

/// Writes the grammar of both variants, between which the model chooses: a list of calls, or calls
/// by name, each after the mark.
#[cfg(feature = "constrained")]
fn write(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let listed = json::write_call(writer, tools)?;
    let list = writer.rule(format!("\" \"? \"[\" {} \"]\"", repeated_calls(&listed, "/, ?/", parallel)));
    let (open, args, call_id) = (writer.mark(FORMAT.open), writer.mark(ARGS), writer.mark(CALL_ID));
    let named = each_tool(writer, tools, |values, tool| {
        refuse_name_unless(is_name(&tool.name))?;
        let id = format!("({call_id} /[0-9A-Za-z]{{9}}/)?");
        Ok(format!("{} {id} {args} {}", literal(&tool.name), values.object_arguments(Dialect::Json)?))
    })?;
    Ok(writer.rule(format!("{list} | {}", repeated_calls(&named, &open, parallel))))
}
