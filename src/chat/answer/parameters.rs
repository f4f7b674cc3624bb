//! Calls whose arguments stand in tags, as text: what they are is in the tool's schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::cursor::Cursor;
use super::form::Shape;
use super::pythonic;
use super::scan::{Ends, Quote};
use crate::chat::{Tool, ToolCall};

pub(super) const SHAPE: Shape = Shape {
    shown_by: &["<tool_call>", "<function="],
    open: "<tool_call>",
    bare: None,
    quotes: &[Quote { open: "<parameter=", close: CLOSE, escapes: false }],
    ends: Ends::Mark("</tool_call>"),
    between: &[],
    ends_thought: true,
    parse: |text, tools| call(text, tools).map(|call| vec![call]),
};

const CLOSE: &str = "</parameter>";

fn call(text: &str, tools: &[Tool]) -> Result<ToolCall, String> {
    let mut cursor = Cursor::new(text);
    cursor.expect("<function=")?;
    let name = cursor.until(">")?.trim();
    let schema = tools.iter().find(|tool| tool.name == name).map(|tool| &tool.parameters["properties"]);
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
        let value = typed(value, schema.and_then(|schema| schema.get(key)))
            .map_err(|what| format!("has `{key}`, which {what}"))?;
        arguments.insert(key.to_owned(), value);
    }
    if !cursor.rest.trim().is_empty() {
        return Err(format!("goes on after its end with `{}`", cursor.rest.trim()));
    }
    Ok(ToolCall::new(name, arguments))
}

/// The value that a text is by its schema: the text itself where nothing says what it is.
fn typed(text: &str, schema: Option<&Value>) -> Result<Value, String> {
    let mut types = BTreeSet::new();
    schema.into_iter().for_each(|schema| collect_types(schema, &mut types));
    if types.is_empty() || types.iter().eq(["string"].iter()) {
        return Ok(text.into());
    }
    let value = serde_json::from_str(text.trim()).ok().or_else(|| pythonic::value(text));
    match value.filter(|value| types.iter().any(|name| is(value, name))) {
        Some(value) => Ok(value),
        None if types.contains("string") => Ok(text.into()),
        None => {
            let types: Vec<&str> = types.into_iter().collect();
            Err(format!("is to be of type {}, but is `{text}`", types.join(" or ")))
        }
    }
}

/// The types that a schema allows.
fn collect_types<'s>(schema: &'s Value, types: &mut BTreeSet<&'s str>) {
    match &schema["type"] {
        Value::String(name) => _ = types.insert(name),
        Value::Array(names) => types.extend(names.iter().filter_map(Value::as_str)),
        _ => {}
    }
    if schema["nullable"] == true {
        types.insert("null");
    }
    for union in ["anyOf", "oneOf"] {
        schema[union].as_array().into_iter().flatten().for_each(|schema| collect_types(schema, types));
    }
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
