//! Parses the option for a chat template.

use std::{fs, path::PathBuf};

use crate::common::{Args, Failure};

/// Usage of the option that [`source`] parses.
pub const TEMPLATE_OPTION: &str =
    "  --template FILE    a chat template (Jinja) instead of the model's own; base models have none";

/// Parses the option and returns the text of the file.
pub fn source(args: &mut Args) -> Result<Option<String>, Failure> {
    let Some(path) = args.value::<PathBuf>("--template")? else { return Ok(None) };
    fs::read_to_string(&path).map(Some).map_err(|e| format!("{}: {e}", path.display()).into())
}
