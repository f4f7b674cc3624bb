//! Tools, and the choice between them.

use inkstone::{
    Runner,
    chat::{ChatOptions, Tool, ToolChoice},
};
use serde_json::{Map, Value};

use crate::{error::ApiError, limits};

/// The tools of a request, of any API.
#[derive(Default)]
pub struct Tools {
    /// The tools that are offered.
    pub offered: Vec<Tool>,
    /// Whether calls must follow the schemas while they are generated.
    pub strict: bool,
    /// Whether the model may, must or must not call a tool.
    pub choice: Choice,
    /// Whether an answer may have several calls.
    pub parallel: bool,
}

/// Whether the model may, must or must not call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The model decides.
    #[default]
    Auto,
    /// The model calls no tool.
    None,
    /// The model calls a tool.
    Required,
    /// The model calls this tool.
    Named(String),
}

impl Tools {
    /// Returns whether an answer may have calls.
    pub fn may_call(&self) -> bool {
        !self.offered.is_empty() && self.choice != Choice::None
    }

    /// Adds the tools to the options of a conversation.
    ///
    /// # Errors
    /// [`ApiError`] for too many tools, and for a choice without tools.
    pub fn add_to(&self, chat: ChatOptions) -> Result<ChatOptions, ApiError> {
        if self.offered.len() > limits::TOOLS {
            return Err(ApiError::field("tools", &format!("has more than {} tools", limits::TOOLS)));
        }
        if self.offered.is_empty() {
            return match self.choice {
                Choice::Auto | Choice::None => Ok(chat),
                Choice::Required | Choice::Named(_) => Err(ApiError::field("tool_choice", "needs `tools`")),
            };
        }
        let chat = chat.tools(self.offered.iter().cloned());
        Ok(match &self.choice {
            // Schemas that a grammar cannot express are refused only where they are asked for.
            Choice::Auto if self.strict => chat.tool_choice(ToolChoice::Auto),
            Choice::Auto => chat,
            Choice::None => chat.tool_choice(ToolChoice::None),
            Choice::Required => chat.tool_choice(ToolChoice::Required),
            Choice::Named(name) => chat.tool_choice(ToolChoice::named(name)),
        })
    }
}

/// Returns a tool. Without a schema, it takes any arguments.
pub fn tool(name: String, description: Option<String>, parameters: Option<Value>) -> Tool {
    let any = || Value::Object(Map::from_iter([("type".to_owned(), "object".into())]));
    Tool::new(name, description.unwrap_or_default(), parameters.filter(|schema| !schema.is_null()).unwrap_or_else(any))
}

/// Sets how much the model reasons, as far as its chat template can.
///
/// # Errors
/// [`ApiError`] with `field` if the template has no such setting.
pub fn with_effort(chat: ChatOptions, effort: &str, model: &Runner, field: &str) -> Result<ChatOptions, ApiError> {
    let template = model.chat_template()?;
    if template.reads("reasoning_effort") {
        return Ok(chat.variable("reasoning_effort", effort));
    }
    if template.reads("enable_thinking") {
        return Ok(chat.enable_thinking(effort != "none"));
    }
    Err(ApiError::field(field, "the model's chat template has no setting for reasoning: leave it out"))
}
