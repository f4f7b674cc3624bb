//! Grammars for answers in which calls fit the tools that were offered, in llguidance's dialect of
//! Lark.
//!
//! A form of calls writes its calls (`Shape::write`), with rules for the values that a schema
//! allows ([`values`]) in the way in which the form writes values ([`dialect`]). Here an answer is
//! put together of text and calls.

mod alternatives;
mod dialect;
mod numbers;
mod values;
mod writer;

use serde_json::json;

pub(super) use dialect::{Dialect, NAME};
pub(super) use values::{Fields, Values};
pub(crate) use writer::SpecialTokens;
use writer::{ANY, lacks};
pub(super) use writer::{Writer, escaped, literal};

use super::AnswerParser;
use super::cursor::is_name_char;
use super::call_format::Shape;
use crate::chat::{Tool, ToolChoice};

/// Writes the expression for calls of these tools, several if they may be, after the mark of the
/// first one.
pub(super) type WriteCalls = fn(&mut Writer<'_>, &[&Tool], bool) -> Result<String, String>;

impl AnswerParser {
    /// Returns a grammar for the answers, after a thought, that the choice of tools allows; `None`
    /// where no choice is set or no tools are offered.
    ///
    /// # Errors
    /// The tool and the keyword of its schema, or its name, that cannot be written.
    pub(crate) fn grammar(&self, special: SpecialTokens<'_>) -> Option<Result<String, String>> {
        let choice = self.offered.choice.as_ref()?;
        self.calls.map(|shape| self.grammar_of(shape, choice, special))
    }

    fn grammar_of(
        &self,
        shape: &'static Shape,
        choice: &ToolChoice,
        special: SpecialTokens<'_>,
    ) -> Result<String, String> {
        let offered = &self.offered;
        let mut writer = Writer::new(special);
        let content = self.text_without_calls(shape);
        let text = writer.terminal(format!("/(?s:.+)/ & {content}"));
        if *choice == ToolChoice::None {
            return Ok(writer.finish(&format!("{text}?")));
        }
        let only = |tool: &&Tool| !matches!(choice, ToolChoice::Named(name) if *name != tool.name);
        let tools: Vec<&Tool> = offered.tools.iter().filter(only).collect();
        let calls = (shape.write)(&mut writer, &tools, offered.parallel)?;
        let may_speak = *choice == ToolChoice::Auto;
        let mut answers = vec![];
        if may_speak {
            answers.push(format!("{text}?"));
        }
        if shape.bare.is_some() {
            answers.push(calls.clone());
        }
        if !shape.open.is_empty() {
            let open = match may_speak {
                true => writer.text_before(shape.open, &self.text_before_calls(shape), true),
                false => writer.mark(shape.open),
            };
            answers.push(format!("{open} {calls}"));
        }
        Ok(writer.finish(&answers.join(" | ")))
    }

    /// The terminals that a text is made of in which the parser finds neither a call nor a thought.
    fn text_without_calls(&self, shape: &Shape) -> String {
        let no_call = (!shape.open.is_empty()).then(|| lacks(shape.open));
        no_call.into_iter().fold(self.text_before_calls(shape), |content, lacking| format!("{content} & {lacking}"))
    }

    /// As [`text_without_calls`](Self::text_without_calls), but with any marks of calls.
    fn text_before_calls(&self, shape: &Shape) -> String {
        let mut content = ANY.to_owned();
        if let Some(thinking) = self.thinking {
            let before = if thinking.anywhere { "(?s:.*)" } else { r"\s*" };
            content += &format!(" & ~/{before}{}(?s:.*)/", escaped(thinking.open));
        }
        if let Some(bare) = &shape.bare {
            content += &format!(" & ~/{}(?s:.*)/", (bare.expression)(&self.offered.tools));
        }
        content
    }
}

/// The expression for a call of one of the tools, each as `write` has it.
pub(super) fn each_tool(
    writer: &mut Writer<'_>,
    tools: &[&Tool],
    write: impl Fn(&mut Values<'_, '_>, &Tool) -> Result<String, String>,
) -> Result<String, String> {
    let mut calls = vec![];
    for tool in tools {
        let any = json!({});
        let schema = if tool.parameters.is_null() { &any } else { &tool.parameters };
        let call = write(&mut Values::new(writer, schema), tool);
        calls.push(call.map_err(|what| format!("the tool `{}` {what}", tool.name.escape_debug()))?);
    }
    Ok(writer.rule(calls.join(" | ")))
}

/// Refuses the name of a tool that a form of calls cannot write.
pub(super) fn refuse_name_unless(writable: bool) -> Result<(), String> {
    let refused = || "has a name that the model's form of calls cannot write".to_owned();
    if writable { Ok(()) } else { Err(refused()) }
}

/// Whether the parsers read this as the name of a function or an argument.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name_char)
}

/// The expression for a call, followed by others where those may be.
pub(super) fn repeated_calls(call: &str, between: &str, parallel: bool) -> String {
    if parallel { format!("{call} ({between} {call})*") } else { call.to_owned() }
}
