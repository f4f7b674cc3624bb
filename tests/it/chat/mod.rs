//! Conversations: templates, answers and calls of tools.

mod answers;
mod injection;
mod limits;
mod own_template;
mod render;
mod runner;
mod tool_calls;
mod tool_choice;
