//! The tools of the responses API.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    error::ApiError,
    openai::tools::{self, Choice, Tools},
};

/// The namespaces and names of tools, by the names under which the model knows them.
pub type Namespaces = HashMap<String, (String, String)>;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ToolDefinition {
    Function { name: String, description: Option<String>, parameters: Option<Value>, strict: Option<bool> },
    Namespace { name: String, description: Option<String>, tools: Vec<NamespaceTool> },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum NamespaceTool {
    Function { name: String, description: Option<String>, parameters: Option<Value>, strict: Option<bool> },
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    None,
    Auto,
    Required,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum NamedChoice {
    Function { name: String },
    AllowedTools { mode: Mode, tools: Vec<AllowedTool> },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum AllowedTool {
    Function { name: String },
}

impl From<Mode> for Choice {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::None => Self::None,
            Mode::Auto => Self::Auto,
            Mode::Required => Self::Required,
        }
    }
}

/// Returns the name under which the model knows a tool of a namespace.
pub fn qualified(namespace: &str, name: &str) -> String {
    format!("{namespace}__{name}")
}

/// Returns the tools that a request offers.
///
/// # Errors
/// [`ApiError`] with the tool, or the choice, that is not supported.
pub fn offered(
    tools: Option<Vec<Value>>,
    choice: Option<Value>,
    parallel: Option<bool>,
) -> Result<(Tools, Namespaces), ApiError> {
    let (mut offered, mut namespaces) = (Tools::default(), Namespaces::new());
    for (index, tool) in tools.unwrap_or_default().into_iter().enumerate() {
        let at = format!("tools[{index}]");
        match ToolDefinition::deserialize(tool).map_err(|error| ApiError::field(at, &error.to_string()))? {
            ToolDefinition::Function { name, description, parameters, strict } => {
                offered.strict |= strict.unwrap_or(false);
                offered.offered.push(tools::tool(name, description, parameters));
            }
            ToolDefinition::Namespace { name: namespace, description: purpose, tools } => {
                for NamespaceTool::Function { name, description, parameters, strict } in tools {
                    offered.strict |= strict.unwrap_or(false);
                    let known_as = qualified(&namespace, &name);
                    let texts: Vec<_> = purpose.iter().cloned().chain(description).collect();
                    offered.offered.push(tools::tool(known_as.clone(), Some(texts.join("\n\n")), parameters));
                    namespaces.insert(known_as, (namespace.clone(), name));
                }
            }
        }
    }
    offered.parallel = parallel.unwrap_or(true);
    choose(&mut offered, choice).map_err(|error| ApiError::field("tool_choice", &error.to_string()))?;
    Ok((offered, namespaces))
}

/// Sets the choice, and leaves the tools that it allows.
fn choose(offered: &mut Tools, choice: Option<Value>) -> Result<(), serde_json::Error> {
    offered.choice = match choice {
        None => Choice::Auto,
        Some(mode @ Value::String(_)) => Mode::deserialize(mode)?.into(),
        Some(choice) => match NamedChoice::deserialize(choice)? {
            NamedChoice::Function { name } => Choice::Named(name),
            NamedChoice::AllowedTools { mode, tools } => {
                let allowed = |name: &str| tools.iter().any(|AllowedTool::Function { name: other }| other == name);
                offered.offered.retain(|tool| allowed(&tool.name));
                mode.into()
            }
        },
    };
    Ok(())
}
