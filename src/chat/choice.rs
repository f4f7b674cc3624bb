//! Whether a model may, must or must not call tools.

/// Whether the model may, must or must not call one of the tools that it is offered; see
/// [`ChatOptions::tool_choice`](super::ChatOptions::tool_choice).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model answers with text or with calls.
    Auto,
    /// The model answers with text. The tools are still described to it, so that earlier calls in
    /// the conversation make sense to it and a prompt that was computed before is used again.
    None,
    /// The model calls at least one tool.
    Required,
    /// The model calls the tool of this name.
    Named(String),
}

impl ToolChoice {
    /// The choice of one tool by its name.
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }
}
