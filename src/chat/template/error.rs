//! Converts errors of minijinja.

use minijinja::ErrorKind;

use super::budget::{MAX_TEXT, MAX_TOTAL};
use crate::error::Error;

/// Returns the error with the template's line.
pub(super) fn template_error(error: minijinja::Error) -> Error {
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let what = match error.kind() {
        // From version 3.1, minijinja subtracts the bytes that steps allocate from the fuel.
        ErrorKind::OutOfFuel => {
            format!("takes too many steps or makes more than {} MB, and may never end", MAX_TOTAL >> 20)
        }
        ErrorKind::WriteFailure => {
            format!("writes more than {} MB: shorten the conversation or correct the template", MAX_TEXT >> 20)
        }
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    Error::ChatTemplate(line + &what)
}
