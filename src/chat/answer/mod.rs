//! Splits streamed model output into reasoning, text and tool calls.
//!
//! Models write reasoning and calls into their text, between marks that differ from family to
//! family ([`CallForm`]). The parser holds back only text that may turn out to be the start of a
//! mark. Splitting the same output into other pieces only changes where events are split.

mod call_form;
mod call_format;
#[cfg(feature = "constrained")]
mod call_grammar;
mod cursor;
mod event;
mod formats;
#[cfg(feature = "constrained")]
mod grammar;
mod harmony;
mod marks;
mod offered_tools;
mod parser;
mod reasoning;
mod scanner;

pub use self::{call_form::CallForm, event::AnswerEvent, parser::AnswerParser};
