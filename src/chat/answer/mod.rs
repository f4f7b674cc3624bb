//! What a model says, piece by piece, in; what it thinks, says and calls apart out.
//!
//! Models write their thoughts and calls into the text, each family in a form of its own ([`CallForm`]). The parser holds back
//! only what may yet become a mark, so that the pieces in which the text came make no difference but to where events are cut.

mod call_format;
#[cfg(feature = "constrained")]
mod call_grammar;
mod cursor;
mod formats;
mod offered_tools;
mod parser;
mod reasoning;
mod scanner;

pub use call_format::CallForm;
pub use parser::AnswerParser;

use super::ToolCall;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerEvent {
    /// A piece of what the model thinks before it answers.
    Reasoning(String),
    /// A piece of what it says.
    Text(String),
    /// A whole call of one of the tools that were offered, with arguments that are valid by the
    /// tool's schema.
    ///
    /// A call of another name or with other arguments is an
    /// [`Error::ToolCall`](crate::Error::ToolCall) in the place of the event, which carries the
    /// call and says what is wrong. The answer goes on after it, and its message has the call, so
    /// that the error can be sent back to the model as the call's result:
    ///
    /// ```no_run
    /// # use inkstone::{Answer, Error, Message, chat::AnswerEvent};
    /// # fn run(weather: fn(&serde_json::Value) -> String, mut answer: Answer<'_>) -> inkstone::Result<()> {
    /// # let mut messages = vec![];
    /// let mut results = vec![];
    /// for event in answer.events() {
    ///     match event {
    ///         Ok(AnswerEvent::ToolCall(call)) => results.push(Message::tool(call.name, weather(&call.arguments))),
    ///         Ok(_) => {}
    ///         Err(Error::ToolCall { what, call: Some(call), .. }) => {
    ///             results.push(Message::tool(call.name, format!("error: the call {what}")));
    ///         }
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// messages.push(answer.message());
    /// messages.extend(results);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// These keywords are checked, as draft 2020-12 of [JSON
    /// Schema](https://json-schema.org/draft/2020-12) defines them: `type`, `enum`, `const`,
    /// `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`, `minLength`,
    /// `maxLength`, `pattern` (without look-around and back-references), `properties`, `required`,
    /// `additionalProperties`, `patternProperties`, `minProperties`, `maxProperties`, `items`,
    /// `prefixItems`, `minItems`, `maxItems`, `uniqueItems`, `anyOf`, `oneOf`, `allOf`, `not`, and
    /// `$ref` to a part of the same schema; and OpenAPI's `nullable`. Other keywords, `format`
    /// among them, are ignored.
    ToolCall(ToolCall),
}
