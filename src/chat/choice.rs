//! The choice between an answer and tool calls.

/// Whether the model may, must or must not call one of the offered tools; see
/// [`ChatOptions::tool_choice`](super::ChatOptions::tool_choice).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides between text and calls.
    Auto,
    /// The model answers with text. The prompt still describes the tools, so that earlier calls of
    /// the conversation stay understandable and a computed prompt can be reused.
    None,
    /// The model calls at least one tool.
    Required,
    /// The model calls the tool with this name.
    Named(String),
}

impl ToolChoice {
    /// Returns the choice of the tool with this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }
}
