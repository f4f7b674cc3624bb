//! Reads and writes calls of Gemma 4 and FunctionGemma: JSON with unquoted keys, and with a mark
//! instead of quotes around strings.

use serde_json::{Map, Value};

#[cfg(feature = "constrained")]
use crate::chat::{
    Tool,
    answer::call_grammar::{Dialect, GrammarWriter, each_tool, is_name, literal, refuse_name_unless, repeated_calls},
};
use crate::chat::{
    ToolCall,
    answer::{
        call_format::{CallEnd, CallFormat, Quote},
        cursor::CallCursor,
    },
};

pub(super) const GEMMA_4: CallFormat = CallFormat {
    template_marks: &[&["<|tool_call>call:"]],
    open: "<|tool_call>",
    unmarked: None,
    quotes: &[Quote { open: "<|\"|>", close: "<|\"|>", escapes: false }],
    end: CallEnd::Mark("<tool_call|>"),
    separators: &[],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| call(text, "<|\"|>"),
    #[cfg(feature = "constrained")]
    write: |writer, tools, parallel| write(writer, tools, parallel, &GEMMA_4, "<|\"|>"),
};

pub(super) const FUNCTION_GEMMA: CallFormat = CallFormat {
    template_marks: &[&["<start_function_call>call:"]],
    open: "<start_function_call>",
    unmarked: None,
    quotes: &[Quote { open: "<escape>", close: "<escape>", escapes: false }],
    end: CallEnd::Mark("<end_function_call>"),
    separators: &[],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| call(text, "<escape>"),
    #[cfg(feature = "constrained")]
    write: |writer, tools, parallel| write(writer, tools, parallel, &FUNCTION_GEMMA, "<escape>"),
};

fn call(text: &str, quote: &str) -> Result<Vec<ToolCall>, String> {
    let mut cursor = CallCursor::new(text);
    cursor.expect("call:")?;
    let name = cursor.name()?;
    cursor.expect("{")?;
    let arguments = object(&mut cursor, quote)?;
    if !cursor.rest.trim().is_empty() {
        return Err(format!("continues after its end with `{}`", cursor.rest.trim()));
    }
    Ok(vec![ToolCall::new(name, arguments)])
}

fn object(cursor: &mut CallCursor<'_>, quote: &str) -> Result<Map<String, Value>, String> {
    let entries = cursor.list("}", |cursor| {
        let in_key = |char| !":{},".contains(char);
        let key = if cursor.eat(quote) { cursor.until(quote)? } else { cursor.take("a key", in_key)? };
        cursor.expect(":")?;
        Ok((key.to_owned(), value(cursor, quote)?))
    })?;
    Ok(entries.into_iter().collect())
}

fn value(cursor: &mut CallCursor<'_>, quote: &str) -> Result<Value, String> {
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
    cursor.number_or_word(&[("true", true.into()), ("false", false.into()), ("null", none.clone()), ("None", none)])
}

#[cfg(feature = "constrained")]
fn write(
    writer: &mut GrammarWriter<'_>,
    tools: &[&Tool],
    parallel: bool,
    format: &CallFormat,
    quote: &'static str,
) -> Result<String, String> {
    let call = each_tool(writer, tools, |values, tool| {
        refuse_name_unless(is_name(&tool.name))?;
        let arguments = values.object_arguments(Dialect::Marked { quote })?;
        Ok(format!("{} {arguments}", literal(&format!("call:{}", tool.name))))
    })?;
    let (open, close) = (writer.mark(format.open), writer.mark(format.close()));
    let closed = writer.rule(format!("{call} {close}"));
    Ok(repeated_calls(&closed, &open, parallel))
}
