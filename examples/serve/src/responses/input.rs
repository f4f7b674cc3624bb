//! The items of a conversation in the responses API.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use inkstone::{
    Message,
    chat::{Content, Part, ToolCall},
};
use serde::{Deserialize, Deserializer, de, de::IgnoredAny};
use serde_json::Value;

use super::tools::qualified;
use crate::{
    body::TextOr,
    chat::{self, content_of},
    error::ApiError,
    limits,
    openai::image,
};

/// An item of a conversation.
#[derive(Debug)]
pub struct InputItem(Item);

/// An item with its type. Fields with an underscore have no effect.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Item {
    Message {
        role: Role,
        content: TextOr<ContentPart>,
        #[serde(rename = "id")]
        _id: Option<String>,
        #[serde(rename = "status")]
        _status: Option<String>,
        #[serde(rename = "phase")]
        _phase: Option<String>,
    },
    FunctionCall {
        call_id: String,
        name: String,
        namespace: Option<String>,
        arguments: String,
        #[serde(rename = "id")]
        _id: Option<String>,
        #[serde(rename = "status")]
        _status: Option<String>,
    },
    FunctionCallOutput {
        call_id: String,
        output: TextOr<ContentPart>,
        #[serde(rename = "id")]
        _id: Option<String>,
        #[serde(rename = "status")]
        _status: Option<String>,
    },
    Reasoning {
        content: Option<Vec<ReasoningPart>>,
        encrypted_content: Option<String>,
        #[serde(rename = "summary")]
        _summary: Option<Vec<IgnoredAny>>,
        #[serde(rename = "id")]
        _id: Option<String>,
        #[serde(rename = "status")]
        _status: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    System,
    Developer,
    Assistant,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ContentPart {
    InputText {
        text: String,
    },
    OutputText {
        text: String,
        #[serde(rename = "annotations")]
        _annotations: Option<[IgnoredAny; 0]>,
        #[serde(rename = "logprobs")]
        _logprobs: Option<Vec<IgnoredAny>>,
    },
    InputImage {
        image_url: String,
        #[serde(rename = "detail")]
        _detail: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ReasoningPart {
    ReasoningText { text: String },
}

/// Reads an item; one without a type is a message.
impl<'de> Deserialize<'de> for InputItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = serde_json::Map::deserialize(deserializer)?;
        fields.retain(|_, value| !value.is_null());
        fields.entry("type").or_insert_with(|| "message".into());
        Item::deserialize(Value::Object(fields)).map(Self).map_err(de::Error::custom)
    }
}

/// Returns the messages for the library.
///
/// # Errors
/// [`ApiError`] with the field that cannot be served.
pub fn conversation(instructions: Option<String>, input: TextOr<InputItem>) -> Result<Vec<Message>, ApiError> {
    let mut conversation = Conversation::default();
    conversation.messages.extend(instructions.map(Message::system));
    match input {
        TextOr::Text(text) => conversation.messages.push(Message::user(text)),
        TextOr::List(items) if items.len() > limits::MESSAGES => {
            return Err(ApiError::field("input", &format!("has more than {} items", limits::MESSAGES)));
        }
        TextOr::List(items) => {
            for (index, InputItem(item)) in items.into_iter().enumerate() {
                conversation.add(item, &format!("input[{index}]"))?;
            }
        }
    }
    conversation.end_answer();
    chat::check(conversation.messages)
}

/// Messages so far.
#[derive(Default)]
struct Conversation {
    messages: Vec<Message>,
    /// The answer that goes on: reasoning, text and calls are items of their own.
    answer: Option<Message>,
    /// The names of tools by the ids of their calls.
    names: HashMap<String, String>,
}

impl Conversation {
    fn end_answer(&mut self) {
        self.messages.extend(self.answer.take());
    }

    fn answer(&mut self) -> Message {
        self.answer.take().unwrap_or_else(|| Message::assistant(""))
    }

    fn add(&mut self, item: Item, at: &str) -> Result<(), ApiError> {
        match item {
            Item::Message { role: Role::Assistant, content, .. } => {
                if self.answer.as_ref().is_some_and(|answer| answer.content != Content::default()) {
                    self.end_answer();
                }
                let mut answer = self.answer();
                answer.content = content_of(parts(content, at)?);
                self.answer = Some(answer);
            }
            Item::Message { role, content, .. } => {
                self.end_answer();
                let content = content_of(parts(content, at)?);
                self.messages.push(match role {
                    Role::User | Role::Assistant => Message::user(content),
                    Role::System | Role::Developer => Message::system(content),
                });
            }
            Item::FunctionCall { call_id, name, namespace, arguments, .. } => {
                let name = namespace.map_or_else(|| name.clone(), |namespace| qualified(&namespace, &name));
                let arguments: Value = serde_json::from_str(&arguments)
                    .map_err(|error| ApiError::field(format!("{at}.arguments"), &error.to_string()))?;
                self.names.insert(call_id.clone(), name.clone());
                let call = ToolCall::new(name, arguments).with_id(call_id);
                self.answer = Some(self.answer().with_tool_calls([call]));
            }
            Item::FunctionCallOutput { call_id, output, .. } => {
                self.end_answer();
                let Some(name) = self.names.get(&call_id) else {
                    return Err(ApiError::field(format!("{at}.call_id"), "is the id of no earlier call"));
                };
                let content = content_of(parts(output, &format!("{at}.output"))?);
                self.messages.push(Message::tool(name, content).for_call(call_id));
            }
            Item::Reasoning { content, encrypted_content, .. } => {
                // The next item of the answer follows, which an earlier answer would have ended.
                self.end_answer();
                let reasoning = reasoning(content, encrypted_content, at)?;
                self.answer = Some(self.answer().with_reasoning(reasoning));
            }
        }
        Ok(())
    }
}

fn parts(content: TextOr<ContentPart>, at: &str) -> Result<Vec<Part>, ApiError> {
    let parts = match content {
        TextOr::Text(text) => return Ok(vec![text.into()]),
        TextOr::List(parts) => parts,
    };
    let part = |(index, part)| {
        Ok(match part {
            ContentPart::InputText { text } | ContentPart::OutputText { text, .. } => text.into(),
            ContentPart::InputImage { image_url, .. } => {
                Part::Image(image::from_url(&image_url, &format!("{at}.content[{index}].image_url"))?)
            }
        })
    };
    parts.into_iter().enumerate().map(part).collect()
}

fn reasoning(content: Option<Vec<ReasoningPart>>, encrypted: Option<String>, at: &str) -> Result<String, ApiError> {
    if let Some(parts) = content.filter(|parts| !parts.is_empty()) {
        return Ok(parts.into_iter().map(|ReasoningPart::ReasoningText { text }| text).collect());
    }
    open(&encrypted.unwrap_or_default())
        .ok_or_else(|| ApiError::field(format!("{at}.encrypted_content"), "is not of this server"))
}

/// Returns reasoning in the form in which clients that may not read it send it back. It is no
/// secret.
pub fn seal(reasoning: &str) -> String {
    STANDARD.encode(reasoning)
}

fn open(sealed: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(sealed).ok()?).ok()
}
