//! The tools that a model was offered, by which its calls are checked.

use crate::chat::{ChatOptions, Tool, ToolCall, ToolChoice, schema};
use crate::error::{Error, Result};

/// The tools, and how the model may call them.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    pub tools: Vec<Tool>,
    pub choice: Option<ToolChoice>,
    pub parallel: bool,
}

impl Offered {
    /// Takes the tools out of the options, if calls of them can be checked.
    pub fn new(options: &ChatOptions) -> Result<Self> {
        let ChatOptions { tools, tool_choice: choice, parallel_tool_calls: parallel, .. } = options;
        for (at, tool) in tools.iter().enumerate() {
            let refused = |what| Error::argument("tools", format!("the tool `{}` {what}", tool.name.escape_debug()));
            if tools[..at].iter().any(|other| other.name == tool.name) {
                return Err(refused("is offered twice: give each a name of its own".to_owned()));
            }
            if !tool.parameters.is_null() {
                let usable = schema::refuse_unusable(&tool.parameters);
                usable.map_err(|what| refused(format!("has a schema that cannot be used: it {what}")))?;
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

    /// Checks a call after `calls_before` others of the same answer, and says what is wrong with
    /// it.
    pub fn check(&self, call: &ToolCall, calls_before: usize) -> Result<(), String> {
        let name = &call.name;
        let Some(tool) = self.tools.iter().find(|tool| tool.name == *name) else {
            return Err(format!("names `{name}`, which is not among the tools offered: {}", self.names()));
        };
        match &self.choice {
            Some(ToolChoice::None) => return Err("is not allowed: the choice of tools is `None`".to_owned()),
            Some(ToolChoice::Named(only)) if only != name => {
                return Err(format!("names `{name}`, but the choice of tools is `{only}`"));
            }
            _ if calls_before > 0 && !self.parallel => {
                return Err("is not the first, but parallel calls are switched off".to_owned());
            }
            _ => {}
        }
        schema::check(&tool.parameters, &call.arguments).map_err(|violation| {
            let path = violation.path();
            let what = if path.is_empty() { "the arguments" } else { "argument " };
            let path = if path.is_empty() { path } else { format!("`{path}`") };
            format!("does not fit `{name}`: {what}{path} {}", violation.what)
        })
    }

    fn names(&self) -> String {
        self.tools.iter().map(|tool| format!("`{}`", tool.name)).collect::<Vec<_>>().join(", ")
    }
}
