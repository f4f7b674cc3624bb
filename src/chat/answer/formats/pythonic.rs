//! Reads and writes calls in the syntax of Python's function calls.

use serde_json::{Map, Value};

use super::json;
#[cfg(feature = "constrained")]
use crate::chat::answer::call_grammar::{
    Dialect, FieldSyntax, GrammarWriter, NAME, ValueRules, each_tool, escaped, is_name, literal, refuse_name_unless,
    repeated_calls,
};
use crate::chat::{
    Tool, ToolCall,
    answer::{
        call_format::{CallEnd, CallFormat, DOUBLE, SINGLE, UnmarkedCall},
        cursor::{CallCursor, is_name_char},
    },
};

pub(super) const UNMARKED: CallFormat = CallFormat {
    template_marks: &[&["[func_name1("]],
    open: "",
    unmarked: Some(UnmarkedCall {
        begins: begins_call,
        #[cfg(feature = "constrained")]
        expression: call_beginnings,
    }),
    quotes: &[DOUBLE, SINGLE],
    end: CallEnd::Bracket,
    separators: &[],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write: write_list,
};

pub(super) const TOOL_CODE: CallFormat = CallFormat {
    template_marks: &[&["```tool_code"]],
    open: "```tool_code",
    unmarked: None,
    quotes: &[DOUBLE, SINGLE],
    end: CallEnd::Mark("```"),
    separators: &[],
    inner: &[],
    ends_reasoning: false,
    parse: |text, _| calls(text),
    #[cfg(feature = "constrained")]
    write: write_code,
};

pub(super) const MARKED: CallFormat = CallFormat {
    template_marks: &[&["<|tool_call_start|>"], &["<|tool_list_start|>"]],
    open: "<|tool_call_start|>",
    unmarked: None,
    quotes: &[DOUBLE, SINGLE],
    end: CallEnd::Mark("<|tool_call_end|>"),
    separators: &[],
    inner: &[],
    ends_reasoning: true,
    parse: |text, _| marked_calls(text),
    #[cfg(feature = "constrained")]
    write: write_marked,
};

/// Returns whether an answer is a list of calls. A list that does not start with the name of a tool
/// is text.
fn begins_call(text: &str, tools: &[Tool]) -> Option<bool> {
    if text.is_empty() {
        return None;
    }
    let Some(list) = text.strip_prefix('[').map(str::trim_start) else { return Some(false) };
    let length = list.find(|char| !is_name_char(char)).unwrap_or(list.len());
    let (name, rest) = list.split_at(length);
    match rest.trim_start().chars().next() {
        None if rest.is_empty() => tools.iter().all(|tool| !tool.name.starts_with(name)).then_some(false),
        None => tools.iter().all(|tool| tool.name != name).then_some(false),
        Some(char) => Some(char == '(' && tools.iter().any(|tool| tool.name == name)),
    }
}

/// Parses a list of calls, which may also be objects of JSON: the model writes them so if it is
/// asked to.
fn marked_calls(text: &str) -> Result<Vec<ToolCall>, String> {
    let is_json = text.trim_start().strip_prefix('[').is_some_and(|list| list.trim_start().starts_with('{'));
    if is_json { json::calls(text) } else { calls(text) }
}

/// Parses a list of calls, or calls in a row.
fn calls(text: &str) -> Result<Vec<ToolCall>, String> {
    let mut cursor = CallCursor::new(text);
    let mut calls = vec![];
    if cursor.eat("[") {
        calls = cursor.list("]", call)?;
    }
    while !cursor.rest.trim_start().is_empty() {
        calls.push(call(&mut cursor)?);
        _ = cursor.eat(";");
    }
    Ok(calls)
}

fn call(cursor: &mut CallCursor<'_>) -> Result<ToolCall, String> {
    let name = cursor.name()?;
    cursor.expect("(")?;
    let arguments = cursor.list(")", |cursor| {
        let key = cursor.name()?;
        if !cursor.eat("=") {
            return Err(format!("has `{key}` without the name of an argument"));
        }
        Ok((key.to_owned(), parse(cursor)?))
    })?;
    Ok(ToolCall::new(name, arguments.into_iter().collect::<Map<_, _>>()))
}

/// Returns the value of a Python or JSON literal; `None` if the text is not a literal.
pub(super) fn value(text: &str) -> Option<Value> {
    let mut cursor = CallCursor::new(text);
    parse(&mut cursor).ok().filter(|_| cursor.rest.trim().is_empty())
}

fn parse(cursor: &mut CallCursor<'_>) -> Result<Value, String> {
    for quote in ['"', '\''] {
        if cursor.eat(quote.encode_utf8(&mut [0; 4])) {
            return Ok(string(cursor, quote)?.into());
        }
    }
    for (open, close) in [("[", "]"), ("(", ")")] {
        if cursor.eat(open) {
            return Ok(cursor.list(close, parse)?.into());
        }
    }
    if cursor.eat("{") {
        let entries = cursor.list("}", |cursor| {
            let key = parse(cursor)?;
            cursor.expect(":")?;
            Ok((key.as_str().map_or_else(|| key.to_string(), str::to_owned), parse(cursor)?))
        })?;
        return Ok(entries.into_iter().collect::<Map<_, _>>().into());
    }
    let python = [("True", true.into()), ("False", false.into()), ("None", Value::Null)];
    let json = [("true", true.into()), ("false", false.into()), ("null", Value::Null)];
    cursor.number_or_word(&[python, json].concat())
}

/// Parses a string after its opening quote.
fn string(cursor: &mut CallCursor<'_>, quote: char) -> Result<String, String> {
    let mut text = String::new();
    let mut chars = cursor.rest.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some('\n') => {}
                Some(kind @ ('x' | 'u' | 'U')) => text.push(escaped_char(&mut chars, kind)?),
                Some(escaped @ ('\\' | '\'' | '"')) => text.push(escaped),
                other => text.extend(['\\'].into_iter().chain(other)),
            },
            _ if char == quote => {
                cursor.rest = chars.as_str();
                return Ok(text);
            }
            _ => text.push(char),
        }
    }
    Err(format!("lacks a `{quote}` at the end of a string"))
}

/// Parses the digits after `\x`, `\u` or `\U`.
fn escaped_char(chars: &mut std::str::Chars<'_>, kind: char) -> Result<char, String> {
    let length = match kind {
        'x' => 2,
        'u' => 4,
        _ => 8,
    };
    let digits: String = chars.by_ref().take(length).collect();
    let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == length).and_then(char::from_u32);
    code.ok_or_else(|| format!("has `\\{kind}{digits}`, which is not a character"))
}

#[cfg(feature = "constrained")]
fn write_list(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    // The bracket and the first name are one terminal, because an answer is recognized as a call by
    // both together.
    let first = each_tool(writer, tools, |values, tool| {
        let head = format!(r"/\s{{0,4}}\[\s{{0,4}}{}\s{{0,4}}\(/", escaped(&tool.name));
        Ok(format!("{head} {}", write_arguments(values, tool)?))
    })?;
    let more = if parallel { format!("(/, ?/ {})*", write_call(writer, tools)?) } else { String::new() };
    Ok(writer.rule(format!("{first} {more} \"]\"")))
}

#[cfg(feature = "constrained")]
fn write_marked(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let calls = repeated_calls(&write_call(writer, tools)?, "/, ?/", parallel);
    Ok(writer.rule(format!("\"[\" {calls} \"]\" {}", writer.mark(MARKED.close()))))
}

#[cfg(feature = "constrained")]
fn write_code(writer: &mut GrammarWriter<'_>, tools: &[&Tool], parallel: bool) -> Result<String, String> {
    let calls = repeated_calls(&write_call(writer, tools)?, "\"\\n\"", parallel);
    Ok(writer.rule(format!("\"\\n\" {calls} \"\\n\" {}", writer.mark(TOOL_CODE.close()))))
}

#[cfg(feature = "constrained")]
fn write_call(writer: &mut GrammarWriter<'_>, tools: &[&Tool]) -> Result<String, String> {
    each_tool(writer, tools, |values, tool| {
        Ok(format!("{} {}", literal(&format!("{}(", tool.name)), write_arguments(values, tool)?))
    })
}

/// Writes the grammar of the arguments and of the closing parenthesis.
#[cfg(feature = "constrained")]
fn write_arguments(values: &mut ValueRules<'_, '_>, tool: &Tool) -> Result<String, String> {
    refuse_name_unless(is_name(&tool.name))?;
    let key = |_: &GrammarWriter<'_>, key: &str| is_name(key).then(|| literal(&format!("{key}=")));
    let any_key = format!("{NAME} \"=\"");
    let (open, comma, close) = ("", "/, ?/", "\")\"");
    values.arguments(&FieldSyntax { open, comma, close, key: &key, any_key: &any_key, values: Dialect::Python })
}

/// Returns the regular expression of the texts for which [`begins_call`] is true.
#[cfg(feature = "constrained")]
fn call_beginnings(tools: &[Tool]) -> String {
    let names: Vec<String> = tools.iter().map(|tool| escaped(&tool.name)).collect();
    format!(r"\s*\[\s*(?:{})\s*\(", names.join("|"))
}
