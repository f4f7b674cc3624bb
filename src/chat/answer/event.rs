//! The parts into which an answer is split.

use serde::{Deserialize, Serialize};

use crate::tool_call::ToolCall;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AnswerEvent {
    /// A piece of the model's reasoning before its answer.
    Reasoning(String),
    /// A piece of the answer's text.
    Text(String),
    /// A complete call of one of the offered tools, with arguments that are valid according to the
    /// tool's schema.
    ///
    /// For a call with an unknown name or invalid arguments the event is an
    /// [`Error::ToolCall`](crate::Error::ToolCall) instead, which contains the call and the reason.
    /// The answer continues after it, and its message includes the call, so that the error can be
    /// sent back to the model as the call's result:
    ///
    /// ```no_run
    /// # use inkstone::{Answer, Error, Message, chat::AnswerEvent};
    /// # use serde_json::Value;
    /// # fn run(weather: fn(&Value) -> String, mut answer: Answer<'_>) -> inkstone::Result<()> {
    /// # let mut messages = vec![];
    /// let mut results = vec![];
    /// for event in answer.events() {
    ///     match event {
    ///         Ok(AnswerEvent::ToolCall(call)) => {
    ///             results.push(Message::tool(call.name, weather(&call.arguments)));
    ///         }
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
    /// The check covers these keywords of [JSON
    /// Schema](https://json-schema.org/draft/2020-12), draft 2020-12: `type`, `enum`, `const`,
    /// `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`, `minLength`,
    /// `maxLength`, `pattern` (without look-around and back-references), `properties`, `required`,
    /// `additionalProperties`, `patternProperties`, `minProperties`, `maxProperties`, `items`,
    /// `prefixItems`, `minItems`, `maxItems`, `uniqueItems`, `anyOf`, `oneOf`, `allOf`, `not`, and
    /// `$ref` to a part of the same schema; and OpenAPI's `nullable`. Other keywords, such as
    /// `format`, are ignored.
    ToolCall(ToolCall),
}
