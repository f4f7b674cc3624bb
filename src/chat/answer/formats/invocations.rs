//! Reads and writes calls of MiniMax-M2: elements with attributes, several calls between one pair
//! of marks. The tool's schema gives the types of the arguments.

use serde_json::{Map, Value};

use super::parameters;
#[cfg(feature = "constrained")]
use crate::chat::answer::call_grammar::{
    Dialect, FieldSyntax, GrammarWriter, NAME, each_tool, literal, refuse_name_unless, repeated_calls,
};
use crate::chat::{
    Tool, ToolCall,
    answer::{
        call_format::{CallEnd, CallFormat, Quote},
        cursor::CallCursor,
    },
};

pub(super) const FORMAT: CallFormat = CallFormat {
    template_marks: &[&["<minimax:tool_call>", "<invoke name="]],
    open: "<minimax:tool_call>",
    unmarked: None,
    quotes: &[Quote { open: PARAMETER, close: CLOSE, escapes: false }],
    end: CallEnd::Mark("</minimax:tool_call>"),
    separators: &[],
    inner: &[],
    ends_reasoning: true,
    parse: calls,
    #[cfg(feature = "constrained")]
    write,
};

const INVOKE: &str = "<invoke name=\"";
const PARAMETER: &str = "<parameter name=\"";
const CLOSE: &str = "</parameter>";
/// The expression of a line break, which is a terminal of its own because several may follow it.
#[cfg(feature = "constrained")]
const LINE: &str = "\"\\n\"";

fn calls(text: &str, tools: &[Tool]) -> Result<Vec<ToolCall>, String> {
    let mut cursor = CallCursor::new(text);
    cursor.expect(INVOKE)?;
    let mut calls = vec![call(&mut cursor, tools)?];
    while cursor.eat(INVOKE) {
        calls.push(call(&mut cursor, tools)?);
    }
    if !cursor.rest.trim().is_empty() {
        return Err(format!("continues after its end with `{}`", cursor.rest.trim()));
    }
    Ok(calls)
}

/// Reads a call after the beginning of its tag.
fn call(cursor: &mut CallCursor<'_>, tools: &[Tool]) -> Result<ToolCall, String> {
    let name = cursor.until("\">")?.trim();
    let schema = tools.iter().find(|tool| tool.name == name).map_or(&Value::Null, |tool| &tool.parameters);
    let mut arguments = Map::new();
    while !cursor.eat("</invoke>") {
        cursor.expect(PARAMETER)?;
        let key = cursor.until("\">")?.trim();
        let value = cursor.until(CLOSE)?;
        arguments.insert(key.to_owned(), parameters::typed(value, schema, &schema["properties"][key]));
    }
    Ok(ToolCall::new(name, arguments))
}

#[cfg(feature = "constrained")]
fn write(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let is_attribute = |name: &str| !name.is_empty() && name.trim() == name && !name.contains(['"', '\n']);
    let key = |_: &GrammarWriter<'_>, key: &str| {
        is_attribute(key).then(|| format!("{LINE} {}", literal(&format!("{PARAMETER}{key}\">"))))
    };
    let any_key = format!("{LINE} {} {NAME} {}", literal(PARAMETER), literal("\">"));
    let values = Dialect::Tagged { end: CLOSE, mark: CLOSE };
    let call = each_tool(writer, tools, |rules, tool| {
        refuse_name_unless(is_attribute(&tool.name))?;
        let fields = FieldSyntax { open: "", comma: "", close: "", key: &key, any_key: &any_key, values };
        let begin = literal(&format!("{INVOKE}{}\">", tool.name));
        Ok(format!("{LINE} {begin} {} {LINE} \"</invoke>\"", rules.arguments(&fields)?))
    })?;
    let calls = repeated_calls(&call, "", parallel);
    Ok(writer.rule(format!("{calls} {LINE} {}", writer.mark(FORMAT.close()))))
}
