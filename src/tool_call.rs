//! A model's call of a tool, which answers and errors contain.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

/// A model's call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The model's id of the call; few models give one.
    pub id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The arguments by name, an object.
    pub arguments: Value,
}

impl ToolCall {
    /// Returns a call without an id.
    pub fn new(name: impl Into<String>, arguments: impl Into<Value>) -> Self {
        Self { id: None, name: name.into(), arguments: arguments.into() }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Function<'a> {
            name: &'a str,
            arguments: &'a Value,
        }
        let mut call = serializer.serialize_map(None)?;
        call.serialize_entry("type", "function")?;
        if let Some(id) = &self.id {
            call.serialize_entry("id", id)?;
        }
        call.serialize_entry("function", &Function { name: &self.name, arguments: &self.arguments })?;
        call.end()
    }
}
