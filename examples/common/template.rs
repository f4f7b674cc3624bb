//! The option with which an example that chats takes a chat template.

use std::{fs, path::PathBuf};

use crate::common::{Args, Failure};

/// The usage of what [`source`] takes.
pub const TEMPLATE_OPTION: &str =
    "  --template FILE    a chat template (Jinja) in the place of the model's own: a base model has none";

/// Takes the option, and returns the text of that file.
pub fn source(args: &mut Args) -> Result<Option<String>, Failure> {
    let Some(path) = args.value::<PathBuf>("--template")? else { return Ok(None) };
    fs::read_to_string(&path).map(Some).map_err(|e| format!("{}: {e}", path.display()).into())
}
