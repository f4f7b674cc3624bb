//! The blocks of messages of Anthropic's API.

use std::{collections::HashMap, mem};

use inkstone::{
    Image, Message,
    chat::{Part, ToolCall},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use crate::{
    body::{Null, TextOr},
    chat::content_of,
    error::ApiError,
    limits,
    openai::image,
};

/// A message.
#[derive(Debug, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
pub enum AnthropicMessage {
    /// A message of the user, with results of calls.
    User {
        /// The content.
        content: TextOr<UserBlock>,
    },
    /// An answer.
    Assistant {
        /// The content.
        content: TextOr<AssistantBlock>,
    },
    /// Instructions in the course of a conversation.
    System {
        /// The content.
        content: TextOr<TextBlock>,
    },
}

/// Text. Fields with an underscore have no effect, since every prompt is cached.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    text: String,
    #[serde(rename = "cache_control")]
    _cache_control: Option<IgnoredAny>,
    #[serde(rename = "citations", default)]
    _citations: Null,
}

/// An image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    source: ImageSource,
    #[serde(rename = "cache_control")]
    _cache_control: Option<IgnoredAny>,
}

/// The file of an image, which says its type itself.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ImageSource {
    Base64 {
        data: String,
        #[serde(rename = "media_type")]
        _media_type: String,
    },
}

/// The result of a call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    tool_use_id: String,
    content: Option<TextOr<ResultBlock>>,
    is_error: Option<bool>,
    #[serde(rename = "cache_control")]
    _cache_control: Option<IgnoredAny>,
}

/// A call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolUse {
    id: String,
    name: String,
    input: Value,
    #[serde(rename = "cache_control")]
    _cache_control: Option<IgnoredAny>,
}

/// A block of instructions.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TextBlock {
    /// Text.
    Text(Text),
}

/// A block of a user's message.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum UserBlock {
    /// Text.
    Text(Text),
    /// An image.
    Image(Picture),
    /// The result of a call.
    ToolResult(ToolResult),
}

/// A block of a call's result.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResultBlock {
    /// Text.
    Text(Text),
    /// An image.
    Image(Picture),
}

/// A block of an answer.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum AssistantBlock {
    /// Text.
    Text(Text),
    /// Reasoning.
    Thinking {
        /// The text.
        thinking: String,
        /// Has no effect: reasoning is not signed.
        #[serde(rename = "signature")]
        _signature: Option<String>,
    },
    /// A call.
    ToolUse(ToolUse),
}

/// The start of a block with which Claude Code begins its instructions. It differs from request to
/// request, so that no prompt would be in the cache.
const BILLING: &str = "x-anthropic-billing-header:";

/// Returns the text of instructions.
fn system_text(texts: TextOr<TextBlock>) -> String {
    match texts {
        TextOr::Text(text) => text,
        TextOr::List(blocks) => {
            let texts = blocks.into_iter().map(|TextBlock::Text(Text { text, .. })| text);
            texts.filter(|text| !text.starts_with(BILLING)).collect::<Vec<_>>().join("\n\n")
        }
    }
}

/// Returns the messages for the library.
///
/// # Errors
/// [`ApiError`] with the field that cannot be served.
pub fn conversation(
    system: Option<TextOr<TextBlock>>,
    messages: Vec<AnthropicMessage>,
) -> Result<Vec<Message>, ApiError> {
    if messages.len() > limits::MESSAGES {
        return Err(ApiError::field("messages", &format!("has more than {} messages", limits::MESSAGES)));
    }
    let mut conversation = Conversation::default();
    conversation.messages.extend(system.map(system_text).filter(|text| !text.is_empty()).map(Message::system));
    for (index, message) in messages.into_iter().enumerate() {
        match message {
            AnthropicMessage::User { content: TextOr::Text(text) } => conversation.user.push(text.into()),
            AnthropicMessage::User { content: TextOr::List(blocks) } => {
                for (block, content) in blocks.into_iter().enumerate() {
                    conversation.add_user(content, &format!("messages[{index}].content[{block}]"))?;
                }
            }
            AnthropicMessage::Assistant { content } => conversation.add_answer(content),
            // Many templates take instructions at the start alone. Claude Code marks instructions
            // in messages of the user in this way.
            AnthropicMessage::System { content } => {
                let text = system_text(content);
                conversation.user.push(format!("<system-reminder>\n{text}\n</system-reminder>").into());
            }
        }
    }
    conversation.end_user();
    Ok(conversation.messages)
}

/// Messages so far.
#[derive(Default)]
struct Conversation {
    messages: Vec<Message>,
    /// Parts of the user's message that goes on: messages of the user that follow each other are
    /// one.
    user: Vec<Part>,
    /// The names of tools by the ids of their calls.
    names: HashMap<String, String>,
}

impl Conversation {
    fn end_user(&mut self) {
        if !self.user.is_empty() {
            self.messages.push(Message::user(content_of(mem::take(&mut self.user))));
        }
    }

    fn add_user(&mut self, block: UserBlock, at: &str) -> Result<(), ApiError> {
        match block {
            UserBlock::Text(Text { text, .. }) => self.user.push(text.into()),
            UserBlock::Image(picture) => self.user.push(Part::Image(decode(picture, at)?)),
            UserBlock::ToolResult(ToolResult { tool_use_id, content, is_error, .. }) => {
                self.end_user();
                let Some(name) = self.names.get(&tool_use_id) else {
                    return Err(ApiError::field(format!("{at}.tool_use_id"), "is the id of no earlier call"));
                };
                let error = is_error.unwrap_or(false).then(|| Part::text("error:"));
                let parts: Vec<_> = error.into_iter().chain(result_parts(content, at)?).collect();
                self.messages.push(Message::tool(name, content_of(parts)).for_call(tool_use_id));
            }
        }
        Ok(())
    }

    fn add_answer(&mut self, content: TextOr<AssistantBlock>) {
        self.end_user();
        let blocks = match content {
            TextOr::Text(text) => return self.messages.push(Message::assistant(text)),
            TextOr::List(blocks) => blocks,
        };
        let (mut texts, mut reasoning, mut calls) = (vec![], None::<String>, vec![]);
        for block in blocks {
            match block {
                AssistantBlock::Text(Text { text, .. }) => texts.push(text),
                AssistantBlock::Thinking { thinking, .. } => *reasoning.get_or_insert_default() += &thinking,
                AssistantBlock::ToolUse(ToolUse { id, name, input, .. }) => {
                    self.names.insert(id.clone(), name.clone());
                    calls.push(ToolCall::new(name, input).with_id(id));
                }
            }
        }
        let answer = Message::assistant(texts.join("\n")).with_tool_calls(calls);
        self.messages.push(reasoning.into_iter().fold(answer, Message::with_reasoning));
    }
}

fn result_parts(content: Option<TextOr<ResultBlock>>, at: &str) -> Result<Vec<Part>, ApiError> {
    let blocks = match content {
        None => return Ok(vec![]),
        Some(TextOr::Text(text)) => return Ok(vec![text.into()]),
        Some(TextOr::List(blocks)) => blocks,
    };
    let part = |(index, block)| {
        Ok(match block {
            ResultBlock::Text(Text { text, .. }) => text.into(),
            ResultBlock::Image(picture) => Part::Image(decode(picture, &format!("{at}.content[{index}]"))?),
        })
    };
    blocks.into_iter().enumerate().map(part).collect()
}

fn decode(picture: Picture, at: &str) -> Result<Image, ApiError> {
    let ImageSource::Base64 { data, .. } = picture.source;
    image::from_base64(&data, &format!("{at}.source.data"))
}
