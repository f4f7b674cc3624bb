//! What a model says, piece by piece, in; what it thinks, says and calls apart out.
//!
//! Models write their thoughts and calls into the text, each family in a form of its own ([`CallForm`]). The parser holds back
//! only what may yet become a mark, so that the pieces in which the text came make no difference but to where events are cut.

mod cursor;
mod form;
mod gemma;
mod json;
mod mistral;
mod parameters;
mod parser;
mod pythonic;
mod scan;
mod thinking;

pub use form::CallForm;
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
    /// A call of a tool, whole.
    ToolCall(ToolCall),
}
