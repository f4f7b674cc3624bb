//! Tests of chat: templates, answers and tool calls.

mod answers;
mod injection;
mod limits;
mod own_template;
mod render;
mod runner;
mod saved;
mod tool_calls;
mod tool_choice;
mod transcripts;
