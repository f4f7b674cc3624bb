//! Declares a model's call of a tool, which answers and errors contain.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeMap};
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

/// Reads a call as [`Serialize`] writes it, and as OpenAI's API does, with the arguments in a
/// string of JSON.
impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Kind {
            Function,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Call {
            #[serde(rename = "type", default)]
            _kind: Option<Kind>,
            id: Option<String>,
            function: Function,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Function {
            name: String,
            arguments: Value,
        }
        let Call { id, function: Function { name, arguments }, .. } = Call::deserialize(deserializer)?;
        let arguments = match arguments {
            Value::String(json) => serde_json::from_str(&json)
                .map_err(|error| D::Error::custom(format!("the arguments of the call of `{name}`: {error}")))?,
            arguments => arguments,
        };
        Ok(Self { id, name, arguments })
    }
}
