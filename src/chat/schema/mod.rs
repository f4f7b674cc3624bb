//! Checks JSON values against JSON Schema, with the keywords that tools use.
//!
//! The check covers the keywords in [`keywords::KEYWORDS`], as draft 2020-12 defines them, and
//! OpenAPI's `nullable`. Other keywords are ignored, as JSON Schema requires for unknown keywords.

mod checker;
mod keywords;
mod number;
mod pattern;
#[cfg(test)]
mod tests;
mod usable;

use std::cell::Cell;

use serde_json::{Map, Value};

use self::checker::ValueChecker;
#[cfg(feature = "constrained")]
pub(super) use self::{
    checker::equal,
    pattern::{ascii_classes, pattern_matches_empty},
};
pub(super) use self::{
    checker::{Violation, resolve},
    usable::refuse_unusable,
};

/// Checks a value against a schema that [`refuse_unusable`] has accepted.
pub(super) fn check(schema: &Value, value: &Value) -> Result<(), Violation> {
    check_within(schema, schema, value)
}

/// Checks a value against `schema`, a part of `root`, within which references are resolved.
pub(super) fn check_within(root: &Value, schema: &Value, value: &Value) -> Result<(), Violation> {
    ValueChecker::new(root, &Cell::new(0), check_keywords).check(schema, value)
}

fn check_keywords(checker: ValueChecker<'_>, schema: &Map<String, Value>, value: &Value) -> Result<(), Violation> {
    if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let present = keywords::KEYWORDS.iter().filter_map(|keyword| Some((keyword, schema.get(keyword.name)?)));
    for (keyword, argument) in present {
        (keyword.check)(checker, schema, argument, value)?;
    }
    Ok(())
}
