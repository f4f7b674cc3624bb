//! Calls whose arguments stand in tags, as text: what they are is in the tool's schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::cursor::Cursor;
use super::super::call_format::Shape;
#[cfg(feature = "constrained")]
use super::super::call_grammar::{Dialect, Fields, NAME, Writer, each_tool, literal, refuse_name_unless, repeated_calls};
use super::pythonic;
use super::super::scanner::{Ends, Quote};
use crate::chat::{Tool, ToolCall, schema};

pub(in crate::chat::answer) const SHAPE: Shape = Shape {
    shown_by: &["<tool_call>", "<function="],
    open: "<tool_call>",
    bare: None,
    quotes: &[Quote { open: "<parameter=", close: CLOSE, escapes: false }],
    ends: Ends::Mark("</tool_call>"),
    between: &[],
    ends_thought: true,
    parse: |text, tools| call(text, tools).map(|call| vec![call]),
    #[cfg(feature = "constrained")]
    write,
};

const CLOSE: &str = "</parameter>";

/// How many schemas within each other are searched for types.
const MAX_DEPTH: usize = 16;

fn call(text: &str, tools: &[Tool]) -> Result<ToolCall, String> {
    let mut cursor = Cursor::new(text);
    cursor.expect("<function=")?;
    let name = cursor.until(">")?.trim();
    let schema = tools.iter().find(|tool| tool.name == name).map_or(&Value::Null, |tool| &tool.parameters);
    let mut arguments = Map::new();
    while !cursor.eat("</function>") {
        cursor.expect("<parameter=")?;
        let key = cursor.until(">")?.trim();
        // Whoever puts the value on lines of its own may have the mark within them.
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
        return Err(format!("goes on after its end with `{}`", cursor.rest.trim()));
    }
    Ok(ToolCall::new(name, arguments))
}

/// The value that a text stands for by the schema `schema`, a part of `root`.
fn typed(text: &str, root: &Value, schema: &Value) -> Value {
    let mut types = BTreeSet::new();
    collect_types(root, schema, &mut types, MAX_DEPTH);
    if types.is_empty() || types.iter().eq(["string"].iter()) {
        return text.into();
    }
    let readings = [serde_json::from_str(text.trim()).ok(), pythonic::value(text)];
    let readings: Vec<Value> = readings.into_iter().flatten().chain([text.into()]).collect();
    let fits = |value: &&Value| schema::check_within(root, schema, value).is_ok();
    let is_of_type = |value: &&Value| types.contains(type_of(value));
    // Where none fits, the check of the call says what is wrong with the nearest one.
    let best = readings.iter().find(fits).or_else(|| readings.iter().find(is_of_type)).or(readings.first());
    best.cloned().unwrap_or_default()
}

/// Adds the types that a schema allows, integers as numbers; none where it does not say.
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
fn write(writer: &mut Writer<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let is_tag = |name: &str| !name.is_empty() && name.trim() == name && !name.contains(['>', '\n']);
    let key = |_: &Writer<'_>, key: &str| is_tag(key).then(|| literal(&format!("\n<parameter={key}>\n")));
    let any_key = format!("\"\\n<parameter=\" {NAME} \">\\n\"");
    let values = Dialect::Tagged { end: "\n</parameter>", mark: CLOSE };
    let call = each_tool(writer, tools, |rules, tool| {
        refuse_name_unless(is_tag(&tool.name))?;
        let fields = Fields { open: "", comma: "", close: "", key: &key, any_key: &any_key, values };
        let arguments = rules.arguments(&fields)?;
        Ok(format!("{} {arguments} \"\\n</function>\"", literal(&format!("<function={}>", tool.name))))
    })?;
    let (open, close) = (writer.mark(SHAPE.open), writer.mark(SHAPE.close()));
    let one = writer.rule(format!("\"\\n\"? {call} \"\\n\"? {close}"));
    Ok(repeated_calls(&one, &format!("\"\\n\"? {open}"), parallel))
}
