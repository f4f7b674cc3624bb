//! Reads and writes calls of GLM-4.5 and later: the name, then pairs of a key and a value in tags.
//! The tool's schema gives the types of the values.

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
    template_marks: &[&["<tool_call>", "<arg_key>"]],
    open: "<tool_call>",
    unmarked: None,
    quotes: &[Quote { open: "<arg_value>", close: CLOSE, escapes: false }],
    end: CallEnd::Mark("</tool_call>"),
    separators: &[],
    inner: &["<arg_key>", "</arg_key>"],
    ends_reasoning: true,
    parse: |text, tools| call(text, tools).map(|call| vec![call]),
    #[cfg(feature = "constrained")]
    write,
};

const CLOSE: &str = "</arg_value>";
/// The expression of a line break, which is a terminal of its own because several may follow it.
#[cfg(feature = "constrained")]
const LINE: &str = "\"\\n\"";

fn call(text: &str, tools: &[Tool]) -> Result<ToolCall, String> {
    let (name, rest) = text.split_at(text.find("<arg_key>").unwrap_or(text.len()));
    let name = name.trim();
    let schema = tools.iter().find(|tool| tool.name == name).map_or(&Value::Null, |tool| &tool.parameters);
    let mut cursor = CallCursor::new(rest);
    let mut arguments = Map::new();
    while cursor.eat("<arg_key>") {
        let key = cursor.until("</arg_key>")?.trim();
        cursor.expect("<arg_value>")?;
        let value = cursor.until(CLOSE)?;
        arguments.insert(key.to_owned(), parameters::typed(value, schema, &schema["properties"][key]));
    }
    if !cursor.rest.trim().is_empty() {
        return Err(format!("continues after its end with `{}`", cursor.rest.trim()));
    }
    Ok(ToolCall::new(name, arguments))
}

#[cfg(feature = "constrained")]
fn write(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let is_tag = |name: &str| !name.is_empty() && name.trim() == name && !name.contains(['<', '\n']);
    let key = |_: &GrammarWriter<'_>, key: &str| {
        is_tag(key).then(|| format!("{LINE} {}", literal(&format!("<arg_key>{key}</arg_key>\n<arg_value>"))))
    };
    let any_key = format!("{LINE} \"<arg_key>\" {NAME} \"</arg_key>\\n<arg_value>\"");
    let values = Dialect::Tagged { end: CLOSE, mark: CLOSE };
    let call = each_tool(writer, tools, |rules, tool| {
        refuse_name_unless(is_tag(&tool.name))?;
        let fields = FieldSyntax { open: "", comma: "", close: "", key: &key, any_key: &any_key, values };
        Ok(format!("{} {} {LINE}", literal(&tool.name), rules.arguments(&fields)?))
    })?;
    let (open, close) = (writer.mark(FORMAT.open), writer.mark(FORMAT.close()));
    let closed = writer.rule(format!("{LINE}? {call} {close}"));
    Ok(repeated_calls(&closed, &format!("{LINE}? {open}"), parallel))
}
