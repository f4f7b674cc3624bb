//! The messages, tools and documents of a conversation. They are serialized with Hugging Face's
//! names, which templates read.

use std::mem;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeStruct};
use serde_json::Value;

use super::ToolCall;
use crate::image::Image;

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
///
/// A conversation can be saved and loaded with serde, with Hugging Face's names of the fields:
///
/// ```
/// use inkstone::Message;
///
/// let conversation = vec![Message::user("Hello!"), Message::assistant("Hello, how can I help?")];
/// let saved = serde_json::to_string(&conversation)?;
/// assert_eq!(serde_json::from_str::<Vec<Message>>(&saved)?, conversation);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Message {
    /// The role of the speaker: `system`, `user`, `assistant`, `tool`, or another role of the
    /// template; letters, digits, `_` and `-`.
    pub role: String,
    /// The content.
    #[serde(default, deserialize_with = "content_or_null")]
    pub content: Content,
    /// The assistant's reasoning before its answer.
    #[serde(rename = "reasoning_content", default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The assistant's tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The name of the tool, for a tool's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The id of the call, for a tool's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// Returns a message with any role.
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

    /// Returns a system message: instructions for the whole conversation.
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new("system", content)
    }

    /// Returns a message of the user.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new("user", content)
    }

    /// Returns a message of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new("assistant", content)
    }

    /// Returns the result of a call of the named tool.
    pub fn tool(name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { name: Some(name.into()), ..Self::new("tool", content) }
    }

    /// Sets the reasoning before the answer.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning = Some(reasoning.into());
        self
    }

    /// Adds an image at the end of the content. Build the content of [`Part`]s for another order.
    ///
    /// ```no_run
    /// use inkstone::{GenerateOptions, Image, Message, Runner};
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-VL-2B-Instruct-Q4_K_M.gguf")?;
    /// let message = Message::user("What is this?").image(Image::open("cat.jpg")?);
    /// println!("{}", runner.chat(&[message], &GenerateOptions::default())?.into_text()?);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    #[must_use]
    pub fn image(mut self, image: Image) -> Self {
        self.content.push(Part::Image(image));
        self
    }

    /// Adds a text at the end of the content, for example after an image.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.content.push(Part::text(text));
        self
    }

    /// Adds tool calls.
    #[must_use]
    pub fn with_tool_calls(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.tool_calls.extend(calls);
        self
    }

    /// Sets the id of the call that this is the result of, for models that give calls an id.
    #[must_use]
    pub fn for_call(mut self, id: impl Into<String>) -> Self {
        self.tool_call_id = Some(id.into());
        self
    }
}

/// Reads the content of a message; null, as calls of tools have it in OpenAI's API, is empty.
fn content_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text(String),
    /// A list of texts and images. A list of texts alone is for templates that support lists.
    Parts(Vec<Part>),
}

impl Content {
    /// Returns the images, in order.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        let parts = match self {
            Self::Text(_) => &[],
            Self::Parts(parts) => parts.as_slice(),
        };
        parts.iter().filter_map(|part| match part {
            Part::Image(image) => Some(image),
            Part::Text { .. } => None,
        })
    }

    /// Appends a part. A text becomes a part, unless it is empty.
    fn push(&mut self, part: Part) {
        let mut parts = match mem::take(self) {
            Self::Text(text) if text.is_empty() => vec![],
            Self::Text(text) => vec![Part::Text { text }],
            Self::Parts(parts) => parts,
        };
        parts.push(part);
        *self = Self::Parts(parts);
    }
}

/// Returns an empty text.
impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
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

/// A part of a message's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, for models with a vision encoder.
    Image(Image),
}

impl Part {
    /// Returns a part with text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Returns the text of a part with text.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image(_) => None,
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::Text { text }
    }
}

impl From<Image> for Part {
    fn from(image: Image) -> Self {
        Self::Image(image)
    }
}

impl<const N: usize> From<[Part; N]> for Content {
    fn from(parts: [Part; N]) -> Self {
        Self::Parts(parts.into())
    }
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tool {
    /// The name by which the model calls it.
    pub name: String,
    /// A description for the model.
    pub description: String,
    /// The JSON Schema of the arguments, an object; null allows any arguments. Calls are checked
    /// against it; see [`AnswerEvent::ToolCall`](super::AnswerEvent::ToolCall).
    pub parameters: Value,
}

impl Tool {
    /// Returns a tool. `parameters` is the JSON Schema of its arguments.
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

/// Reads a tool as [`Serialize`] writes it.
impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
        enum Wrapped {
            Function { function: Function },
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Function {
            name: String,
            #[serde(default)]
            description: String,
            #[serde(default)]
            parameters: Value,
        }
        let Wrapped::Function { function: Function { name, description, parameters } } =
            Wrapped::deserialize(deserializer)?;
        Ok(Self { name, description, parameters })
    }
}

/// A text for the model to answer from, for templates that support documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Document {
    /// The title.
    pub title: String,
    /// The text.
    pub text: String,
}

impl Document {
    /// Returns a document.
    pub fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), text: text.into() }
    }
}
