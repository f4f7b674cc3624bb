//! Calls as Gemma 4 writes them: JSON without quotes around keys, and marks in the place of quotes.

use serde_json::{Map, Value};

use super::super::cursor::Cursor;
use super::super::call_format::Shape;
#[cfg(feature = "constrained")]
use super::super::call_grammar::{Dialect, Writer, each_tool, is_name, literal, refuse_name_unless, repeated_calls};
use super::super::scanner::{Ends, Quote};
#[cfg(feature = "constrained")]
use crate::chat::Tool;
use crate::chat::ToolCall;

pub(in crate::chat::answer) const GEMMA_4: Shape = Shape {
    shown_by: &["<|tool_call>call:"],
    open: "<|tool_call>",
    bare: None,
    quotes: &[Quote { open: "<|\"|>", close: "<|\"|>", escapes: false }],
    ends: Ends::Mark("<tool_call|>"),
    between: &[],
    ends_thought: false,
    parse: |text, _| call(text, "<|\"|>"),
    #[cfg(feature = "constrained")]
    write: |writer, tools, parallel| write(writer, tools, parallel, &GEMMA_4, "<|\"|>"),
};

pub(in crate::chat::answer) const FUNCTION_GEMMA: Shape = Shape {
    shown_by: &["<start_function_call>call:"],
    open: "<start_function_call>",
    bare: None,
    quotes: &[Quote { open: "<escape>", close: "<escape>", escapes: false }],
    ends: Ends::Mark("<end_function_call>"),
    between: &[],
    ends_thought: false,
    parse: |text, _| call(text, "<escape>"),
    #[cfg(feature = "constrained")]
    write: |writer, tools, parallel| write(writer, tools, parallel, &FUNCTION_GEMMA, "<escape>"),
};

fn call(text: &str, quote: &str) -> Result<Vec<ToolCall>, String> {
    let mut cursor = Cursor::new(text);
    cursor.expect("call:")?;
    let name = cursor.name()?;
    cursor.expect("{")?;
    let arguments = object(&mut cursor, quote)?;
    if !cursor.rest.trim().is_empty() {
        return Err(format!("goes on after its end with `{}`", cursor.rest.trim()));
    }
    Ok(vec![ToolCall::new(name, arguments)])
}

fn object(cursor: &mut Cursor<'_>, quote: &str) -> Result<Map<String, Value>, String> {
    let entries = cursor.list("}", |cursor| {
        let bare = |char| !":{},".contains(char);
        let key = if cursor.eat(quote) { cursor.until(quote)? } else { cursor.take("a key", bare)? };
        cursor.expect(":")?;
        Ok((key.to_owned(), value(cursor, quote)?))
    })?;
    Ok(entries.into_iter().collect())
}

fn value(cursor: &mut Cursor<'_>, quote: &str) -> Result<Value, String> {
    if cursor.eat(quote) {
        return Ok(cursor.until(quote)?.into());
    }
    if cursor.eat("{") {
        return Ok(object(cursor, quote)?.into());
    }
    if cursor.eat("[") {
        return Ok(cursor.list("]", |cursor| value(cursor, quote))?.into());
    }
    let none = Value::Null;
    cursor.plain(&[("true", true.into()), ("false", false.into()), ("null", none.clone()), ("None", none)])
}

#[cfg(feature = "constrained")]
fn write(
    writer: &mut Writer<'_>,
    tools: &[&Tool],
    parallel: bool,
    shape: &Shape,
    quote: &'static str,
) -> Result<String, String> {
    let call = each_tool(writer, tools, |values, tool| {
        refuse_name_unless(is_name(&tool.name))?;
        let arguments = values.object_arguments(Dialect::Marked { quote })?;
        Ok(format!("{} {arguments}", literal(&format!("call:{}", tool.name))))
    })?;
    let (open, close) = (writer.mark(shape.open), writer.mark(shape.close()));
    let one = writer.rule(format!("{call} {close}"));
    Ok(repeated_calls(&one, &open, parallel))
}
