//! What an engine does for a request, and what it says about it.

use inkstone::{
    GenerateOptions, Message, Prompt, StopReason, Summary,
    chat::{ChatOptions, ToolCall},
};
use serde_json::Value;

use crate::error::ApiError;

/// The work for one request.
pub struct Job {
    /// The conversation or the text.
    pub input: Input,
    /// The field of the request that has it.
    pub field: &'static str,
    /// The options, without a grammar.
    pub options: GenerateOptions,
    /// The form of the text.
    pub form: Option<Form>,
    /// Number of answers.
    pub choices: usize,
}

/// The conversation to answer, or the text to continue.
pub enum Input {
    /// A conversation.
    Chat {
        /// The messages.
        messages: Vec<Message>,
        /// Tools and variables of the template.
        chat: ChatOptions,
        /// Whether an answer may have several tool calls.
        parallel_tool_calls: bool,
    },
    /// Texts or ids, each with as many answers as the others; the answers to the first come first.
    Prompts(Vec<Prompt<'static>>),
}

/// A form that text must have: JSON of a schema.
pub struct Form {
    /// The schema.
    pub schema: Value,
    /// The field of the request that has it.
    pub field: &'static str,
}

/// A step of an answer.
#[derive(Debug)]
pub enum Event {
    /// The answer has begun: its prompt has this number of tokens.
    Started(usize),
    /// A piece of the answer, and its tokens if log-probabilities are asked for.
    Piece(Piece, Vec<TokenLogprob>),
    /// The answer is complete.
    Ended(Ended),
    /// The answer has failed.
    Failed(ApiError),
}

/// A piece of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Reasoning before the text.
    Reasoning(String),
    /// Text.
    Text(String),
    /// A complete call of a tool, which has an id.
    Call(ToolCall),
}

/// A generated token with its log-probability and the most probable tokens in its place.
#[derive(Clone, Debug)]
pub struct TokenLogprob {
    /// The bytes of its text.
    pub bytes: Vec<u8>,
    /// The text that became certain with it.
    pub text: String,
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// The most probable tokens, without others of their own.
    pub top: Vec<TokenLogprob>,
}

/// The end of an answer.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The reason.
    pub finish: Finish,
    /// Counts and times.
    pub summary: Summary,
    /// Number of tokens of reasoning.
    pub reasoning_tokens: usize,
}

/// The reason why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn.
    Turn,
    /// The text reached this stop string.
    StopString(String),
    /// The limit of tokens was reached.
    TokenLimit,
    /// The context is full.
    ContextEnd,
    /// The answer has tool calls.
    Calls,
}

impl Finish {
    /// Returns the reason of a generation, whose answer may have tool calls.
    pub fn new(reason: &StopReason, has_calls: bool) -> Self {
        match reason {
            StopReason::TokenLimit => Self::TokenLimit,
            StopReason::ContextEnd => Self::ContextEnd,
            _ if has_calls => Self::Calls,
            StopReason::StopString(text) => Self::StopString(text.clone()),
            _ => Self::Turn,
        }
    }
}

/// The pieces of an answer, put together.
#[derive(Debug, Default)]
pub struct Answer {
    /// The reasoning, empty if there is none.
    pub reasoning: String,
    /// The text.
    pub text: String,
    /// The tool calls.
    pub calls: Vec<ToolCall>,
    /// The tokens of the text, if log-probabilities are asked for.
    pub tokens: Vec<TokenLogprob>,
}

impl Answer {
    /// Adds a piece at the end.
    pub fn add(&mut self, piece: Piece, tokens: Vec<TokenLogprob>) {
        match piece {
            Piece::Reasoning(text) => self.reasoning += &text,
            Piece::Text(text) => {
                self.text += &text;
                self.tokens.extend(tokens);
            }
            Piece::Call(call) => self.calls.push(call),
        }
    }
}
