//! What a conversation is made of. Serialised, it has Hugging Face's names, which are those that templates read.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::ToolCall;

/// One message of a conversation.
///
/// ```
/// use inkstone::chat::{Message, ToolCall};
///
/// let call = ToolCall::new("weather", serde_json::json!({"place": "Oslo"}));
/// let conversation = [
///     Message::system("Be brief."),
///     Message::user("How is the weather in Oslo?"),
///     Message::assistant("").with_reasoning("I should look.").with_tool_calls([call]),
///     Message::tool("weather", "fair, 12 °C"),
/// ];
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or another role that the template knows: letters, digits, `_` and `-`.
    pub role: String,
    /// What is said.
    pub content: Content,
    /// What an assistant thought before it spoke.
    #[serde(rename = "reasoning_content", skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The tools that an assistant calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The tool whose result this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The call whose result this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            reasoning: None,
            tool_calls: vec![],
            name: None,
            tool_call_id: None,
        }
    }

    /// What the model is to be and do in the whole conversation.
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new("system", content)
    }

    /// What the user says.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new("user", content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new("assistant", content)
    }

    /// What a call of the tool of this name resulted in.
    pub fn tool(name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { name: Some(name.into()), ..Self::new("tool", content) }
    }

    /// With what was thought before it.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning = Some(reasoning.into());
        self
    }

    /// With calls of tools.
    #[must_use]
    pub fn with_tool_calls(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.tool_calls.extend(calls);
        self
    }

    /// With the id of the call whose result this is, for models that give their calls one.
    #[must_use]
    pub fn for_call(mut self, id: impl Into<String>) -> Self {
        self.tool_call_id = Some(id.into());
        self
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text(String),
    /// Several parts, for templates that take such.
    Parts(Vec<Part>),
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Content {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<Vec<Part>> for Content {
    fn from(parts: Vec<Part>) -> Self {
        Self::Parts(parts)
    }
}

/// A part of what a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
}

impl Part {
    /// A part that is text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tool {
    /// What it is called by.
    pub name: String,
    /// What it does, in words.
    pub description: String,
    /// The JSON Schema of its arguments, which are an object; null allows any. Calls are checked by
    /// it, see [`AnswerEvent::ToolCall`](super::AnswerEvent::ToolCall).
    pub parameters: Value,
}

impl Tool {
    /// A tool with the JSON schema of its arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: impl Into<Value>) -> Self {
        Self { name: name.into(), description: description.into(), parameters: parameters.into() }
    }
}

impl Serialize for Tool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Function<'a> {
            name: &'a str,
            description: &'a str,
            parameters: &'a Value,
        }
        let Self { name, description, parameters } = self;
        let mut tool = serializer.serialize_struct("Tool", 2)?;
        tool.serialize_field("type", "function")?;
        tool.serialize_field("function", &Function { name, description, parameters })?;
        tool.end()
    }
}

/// A text that the model is to answer from, for templates that take such.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Document {
    /// Its title.
    pub title: String,
    /// Its text.
    pub text: String,
}

impl Document {
    /// A document.
    pub fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), text: text.into() }
    }
}
