//! The messages of the chat API.

use std::collections::HashMap;

use inkstone::{
    Message,
    chat::{Content, Part, ToolCall},
};
use serde::Deserialize;

use crate::{
    body::{Null, TextOr},
    error::ApiError,
    limits,
    openai::image,
};

/// A message. Clients send answers back as they are, with fields that are null.
#[derive(Debug, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
pub enum ChatMessage {
    /// Instructions.
    System {
        /// The text.
        content: TextOr<TextPart>,
    },
    /// Instructions, by their new name.
    Developer {
        /// The text.
        content: TextOr<TextPart>,
    },
    /// A message of the user.
    User {
        /// Text and images.
        content: TextOr<UserPart>,
    },
    /// An answer.
    Assistant(AssistantMessage),
    /// The result of a call.
    Tool {
        /// The text.
        content: TextOr<TextPart>,
        /// The id of the call.
        tool_call_id: String,
    },
}

/// An answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssistantMessage {
    content: Option<TextOr<TextPart>>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
    #[serde(rename = "refusal", default)]
    _refusal: Null,
    #[serde(rename = "audio", default)]
    _audio: Null,
    #[serde(rename = "function_call", default)]
    _function_call: Null,
    #[serde(rename = "annotations", default)]
    _annotations: Option<Vec<Null>>,
}

/// A part with text.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TextPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
}

/// A part of a user's message.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum UserPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    ImageUrl {
        /// Its URL.
        image_url: ImageUrl,
    },
}

/// The URL of an image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageUrl {
    url: String,
    /// Has no effect: the model determines the size.
    #[serde(rename = "detail", default)]
    _detail: Option<Detail>,
}

/// The size in which a model should see an image.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// The model's choice.
    Auto,
    /// Small.
    Low,
    /// Large.
    High,
}

/// Returns the text of a content.
fn text_of(content: TextOr<TextPart>) -> String {
    match content {
        TextOr::Text(text) => text,
        TextOr::List(parts) => parts.into_iter().map(|TextPart::Text { text }| text).collect::<Vec<_>>().join("\n"),
    }
}

/// Returns the messages for the library.
///
/// # Errors
/// [`ApiError`] with the field that cannot be served.
pub fn conversation(messages: Vec<ChatMessage>) -> Result<Vec<Message>, ApiError> {
    if messages.len() > limits::MESSAGES {
        return Err(ApiError::field("messages", &format!("has more than {} messages", limits::MESSAGES)));
    }
    let mut names = HashMap::new();
    let mut converted = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        let at = format!("messages[{index}]");
        converted.push(match message {
            ChatMessage::System { content } | ChatMessage::Developer { content } => Message::system(text_of(content)),
            ChatMessage::User { content } => Message::user(user_content(content, &at)?),
            ChatMessage::Assistant(message) => {
                let calls = message.tool_calls.unwrap_or_default();
                let ids = calls.iter().filter_map(|call| Some((call.id.clone()?, call.name.clone())));
                names.extend(ids);
                let text = message.content.map(text_of).unwrap_or_default();
                let answer = Message::assistant(text).with_tool_calls(calls);
                message.reasoning_content.into_iter().fold(answer, Message::with_reasoning)
            }
            ChatMessage::Tool { content, tool_call_id } => {
                let Some(name) = names.get(&tool_call_id) else {
                    return Err(ApiError::field(format!("{at}.tool_call_id"), "is the id of no earlier call"));
                };
                Message::tool(name, text_of(content)).for_call(tool_call_id)
            }
        });
    }
    check(converted)
}

/// Merges the instructions at the start, and refuses conversations that cannot be answered.
///
/// # Errors
/// [`ApiError`] for too many images, and for an answer at the end.
pub fn check(messages: Vec<Message>) -> Result<Vec<Message>, ApiError> {
    image::check_count(messages.iter().map(|message| message.content.images().count()).sum())?;
    if messages.last().is_some_and(|message| message.role == "assistant") {
        let what = "must not end with an answer of the assistant: answers cannot be continued";
        return Err(ApiError::field("messages", what));
    }
    // Most templates take one system message, at the start.
    let leading = messages.iter().take_while(|message| message.role == "system").count();
    if leading < 2 {
        return Ok(messages);
    }
    let text = |message: &Message| match &message.content {
        Content::Text(text) => text.clone(),
        _ => String::new(),
    };
    let texts: Vec<_> = messages[..leading].iter().map(text).collect();
    let system = Message::system(texts.join("\n\n"));
    Ok([system].into_iter().chain(messages.into_iter().skip(leading)).collect())
}

fn user_content(content: TextOr<UserPart>, at: &str) -> Result<Content, ApiError> {
    let parts = match content {
        TextOr::Text(text) => return Ok(text.into()),
        TextOr::List(parts) => parts,
    };
    let part = |(index, part)| {
        Ok(match part {
            UserPart::Text { text } => Part::text(text),
            UserPart::ImageUrl { image_url } => {
                Part::Image(image::from_url(&image_url.url, &format!("{at}.content[{index}].image_url.url"))?)
            }
        })
    };
    let parts: Result<Vec<_>, ApiError> = parts.into_iter().enumerate().map(part).collect();
    Ok(content_of(parts?))
}

/// Returns the content with these parts. Texts alone are one text, for templates without lists.
pub fn content_of(parts: Vec<Part>) -> Content {
    let text = |part: &Part| match part {
        Part::Text { text } => Some(text.clone()),
        _ => None,
    };
    match parts.iter().map(text).collect::<Option<Vec<_>>>() {
        Some(texts) => texts.join("\n").into(),
        None => parts.into(),
    }
}
