//! Reads and writes calls whose arguments are text in tags. The tool's schema gives their types.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::pythonic;
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
    schema,
};

pub(super) const FORMAT: CallFormat = CallFormat {
    template_marks: &[&["<tool_call>", "<function="]],
    open: "<tool_call>",
    unmarked: None,
    quotes: &[Quote { open: "<parameter=", close: CLOSE, escapes: false }],
    end: CallEnd::Mark("</tool_call>"),
    separators: &[],
    inner: &[],
    ends_reasoning: true,
    parse: |text, tools| call(text, tools).map(|call| vec![call]),
    #[cfg(feature = "constrained")]
    write,
};

const CLOSE: &str = "</parameter>";

/// The deepest nesting of schemas that is searched for types.
const MAX_DEPTH: usize = 16;

fn call(text: &str, tools: &[Tool]) -> Result<ToolCall, String> {
    let mut cursor = CallCursor::new(text);
    cursor.expect("<function=")?;
    let name = cursor.until(">")?.trim();
    let schema = tools.iter().find(|tool| tool.name == name).map_or(&Value::Null, |tool| &tool.parameters);
    let mut arguments = Map::new();
    while !cursor.eat("</function>") {
        cursor.expect("<parameter=")?;
        let key = cursor.until(">")?.trim();
        // A value between line breaks may contain the closing tag within its lines.
        let value = match cursor.rest.strip_prefix('\n') {
            Some(lines) if lines.contains("\n</parameter>") => {
                cursor.rest = lines;
                cursor.until("\n</parameter>")?
            }
            _ => cursor.until(CLOSE)?.trim_matches('\n'),
        };
        arguments.insert(key.to_owned(), typed(value, schema, &schema["properties"][key]));
    }
    if !cursor.rest.trim().is_empty() {
        return Err(format!("continues after its end with `{}`", cursor.rest.trim()));
    }
    Ok(ToolCall::new(name, arguments))
}

/// Returns the value of an argument's text according to `schema`, a part of the schema `root`.
pub(super) fn typed(text: &str, root: &Value, schema: &Value) -> Value {
    let mut types = BTreeSet::new();
    collect_types(root, schema, &mut types, MAX_DEPTH);
    if types.is_empty() || types.iter().eq(["string"].iter()) {
        return text.into();
    }
    let readings = [serde_json::from_str(text.trim()).ok(), pythonic::value(text)];
    let readings: Vec<Value> = readings.into_iter().flatten().chain([text.into()]).collect();
    let fits = |value: &&Value| schema::check_within(root, schema, value).is_ok();
    let is_of_type = |value: &&Value| types.contains(type_of(value));
    // If none fits, the later check of the call reports what is wrong with the closest one.
    let best = readings.iter().find(fits).or_else(|| readings.iter().find(is_of_type)).or(readings.first());
    best.cloned().unwrap_or_default()
}

/// Adds the names of the types that a schema allows, `number` for integers; no name if the schema
/// does not restrict the type.
fn collect_types<'s>(root: &'s Value, schema: &'s Value, types: &mut BTreeSet<&'s str>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let number = |name: &'s str| if name == "integer" { "number" } else { name };
    match &schema["type"] {
        Value::String(name) => _ = types.insert(number(name)),
        Value::Array(names) => types.extend(names.iter().filter_map(Value::as_str).map(number)),
        _ => {
            let allowed = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
            allowed.for_each(|value| _ = types.insert(type_of(value)));
        }
    }
    if schema["nullable"] == true {
        types.insert("null");
    }
    let referred = schema["$ref"].as_str().and_then(|reference| schema::resolve(root, reference));
    let parts =
        ["anyOf", "oneOf", "allOf"].into_iter().flat_map(|union| schema[union].as_array().into_iter().flatten());
    parts.chain(referred).for_each(|schema| collect_types(root, schema, types, depth));
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(feature = "constrained")]
fn write(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let is_tag = |name: &str| !name.is_empty() && name.trim() == name && !name.contains(['>', '\n']);
    let key = |_: &GrammarWriter<'_>, key: &str| is_tag(key).then(|| literal(&format!("\n<parameter={key}>\n")));
    let any_key = format!("\"\\n<parameter=\" {NAME} \">\\n\"");
    let values = Dialect::Tagged { end: "\n</parameter>", mark: CLOSE };
    let call = each_tool(writer, tools, |rules, tool| {
        refuse_name_unless(is_tag(&tool.name))?;
        let fields = FieldSyntax { open: "", comma: "", close: "", key: &key, any_key: &any_key, values };
        let arguments = rules.arguments(&fields)?;
        Ok(format!("{} {arguments} \"\\n</function>\"", literal(&format!("<function={}>", tool.name))))
    })?;
    let (open, close) = (writer.mark(FORMAT.open), writer.mark(FORMAT.close()));
    let closed = writer.rule(format!("\"\\n\"? {call} \"\\n\"? {close}"));
    Ok(repeated_calls(&closed, &format!("\"\\n\"? {open}"), parallel))
}
