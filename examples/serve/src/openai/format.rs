//! The form of an answer's text.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{engine::Form, error::ApiError};

/// The form of an answer's text, as the chat API takes it.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResponseFormat {
    /// Any text.
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema {
        /// The schema.
        json_schema: NamedSchema,
    },
}

/// A schema with a name for people.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedSchema {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    schema: Value,
    /// Has no effect: schemas are always followed.
    #[serde(rename = "strict", default)]
    _strict: Option<bool>,
}

/// The form of an answer's text, as the responses API takes it.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TextFormat {
    /// Any text.
    Text {},
    /// A JSON object.
    JsonObject {},
    /// JSON of a schema.
    JsonSchema {
        /// The name, for people.
        #[serde(rename = "name")]
        _name: String,
        /// The description, for people.
        #[serde(rename = "description", default)]
        _description: Option<String>,
        /// The schema.
        schema: Value,
        /// Has no effect: schemas are always followed.
        #[serde(rename = "strict", default)]
        _strict: Option<bool>,
    },
}

impl ResponseFormat {
    /// Returns the form for the engine, `None` for any text.
    pub fn form(self) -> Option<Form> {
        let schema = match self {
            Self::Text => return None,
            Self::JsonObject => json!({"type": "object"}),
            Self::JsonSchema { json_schema } => json_schema.schema,
        };
        Some(Form { schema, field: "response_format" })
    }
}

impl TextFormat {
    /// Returns the form for the engine, `None` for any text.
    pub fn form(self) -> Option<Form> {
        let schema = match self {
            Self::Text {} => return None,
            Self::JsonObject {} => json!({"type": "object"}),
            Self::JsonSchema { schema, .. } => schema,
        };
        Some(Form { schema, field: "text.format" })
    }
}

/// Refuses a form together with tools that may be called.
///
/// # Errors
/// [`ApiError`] with the field of the form.
pub fn check(form: Option<&Form>, may_call: bool) -> Result<(), ApiError> {
    match form {
        Some(form) if may_call => {
            let what = "cannot be combined with tools: leave them out, or set `tool_choice` to `none`";
            Err(ApiError::field(form.field, what))
        }
        Some(_) | None => Ok(()),
    }
}
