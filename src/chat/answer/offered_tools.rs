//! Checks a model's calls against the tools that were offered to it.

use crate::{
    chat::{ChatOptions, Tool, ToolCall, ToolChoice, schema},
    error::{Error, Result},
};

/// The tools that are offered to a model, and the rules for calling them.
#[derive(Clone, Debug)]
pub(super) struct OfferedTools {
    pub tools: Vec<Tool>,
    pub choice: Option<ToolChoice>,
    /// Whether one answer may have several calls.
    pub parallel: bool,
}

impl OfferedTools {
    /// Returns the tools of the options; an error if one has a schema that calls cannot be checked
    /// against, if two have the same name, or if the choice of tools names none of them.
    pub fn new(options: &ChatOptions) -> Result<Self> {
        let ChatOptions { tools, tool_choice: choice, parallel_tool_calls: parallel, .. } = options;
        for (index, tool) in tools.iter().enumerate() {
            let refused = |what| Error::argument("tools", format!("the tool `{}` {what}", tool.name.escape_debug()));
            if tools[..index].iter().any(|other| other.name == tool.name) {
                return Err(refused("is offered twice: give every tool a different name".to_owned()));
            }
            if !tool.parameters.is_null() {
                let usable = schema::refuse_unusable(&tool.parameters);
                usable.map_err(|what| refused(format!("has a schema that cannot be used, because it {what}")))?;
            }
        }
        let offered = Self { tools: tools.clone(), choice: choice.clone(), parallel: *parallel };
        match choice {
            Some(ToolChoice::Required) if tools.is_empty() => Err(Error::argument(
                "tool_choice",
                "requires a call, but no tools are offered: set `ChatOptions::tools`",
            )),
            Some(ToolChoice::Named(name)) if !tools.iter().any(|tool| tool.name == *name) => {
                let what = format!("names `{}`, which is not among the tools offered: {}", name, offered.names());
                Err(Error::argument("tool_choice", what))
            }
            _ => Ok(offered),
        }
    }

    /// Checks a call that follows `calls_before` other calls of the same answer. The error
    /// completes the sentence "the call ..".
    pub fn check(&self, call: &ToolCall, calls_before: usize) -> Result<(), String> {
        let name = &call.name;
        let Some(tool) = self.tools.iter().find(|tool| tool.name == *name) else {
            return Err(format!("names `{name}`, which is not among the tools offered: {}", self.names()));
        };
        match &self.choice {
            Some(ToolChoice::None) => return Err("is not allowed, because the choice of tools is `None`".to_owned()),
            Some(ToolChoice::Named(only)) if only != name => {
                return Err(format!("names `{name}`, but the choice of tools is `{only}`"));
            }
            _ if calls_before > 0 && !self.parallel => {
                return Err("is not the first of its answer, but parallel tool calls are disabled".to_owned());
            }
            _ => {}
        }
        schema::check(&tool.parameters, &call.arguments).map_err(|violation| {
            let path = violation.path();
            let place = if path.is_empty() { "the arguments".to_owned() } else { format!("argument `{path}`") };
            format!("does not fit `{name}`: {place} {}", violation.reason)
        })
    }

    fn names(&self) -> String {
        self.tools.iter().map(|tool| format!("`{}`", tool.name)).collect::<Vec<_>>().join(", ")
    }
}
