//! Renders conversations into prompts, and splits answers into reasoning, text and tool calls.
//!
//! The model file brings a chat template, `tokenizer.chat_template`, in Jinja as Hugging Face's
//! `apply_chat_template` takes it. minijinja renders it with the settings of transformers: trimmed
//! blocks, Python's methods of strings and dicts, `raise_exception`, `strftime_now`, `tojson`,
//! `{% break %}` and `{% continue %}`.
//!
//! Neither the template nor the conversation is trusted. A template can only read its arguments,
//! and its steps, sizes and memory (320 MB) are limited. Special tokens in a conversation are text
//! ([`ChatTemplate::prompt`]).

mod answer;
mod choice;
mod message;
mod options;
mod schema;
mod template;

pub use self::{
    answer::{AnswerEvent, AnswerParser, CallForm},
    choice::ToolChoice,
    message::{Content, Document, Message, Part, Tool},
    options::ChatOptions,
    template::{ChatTemplate, RenderedPrompt},
};
pub use crate::tool_call::ToolCall;
