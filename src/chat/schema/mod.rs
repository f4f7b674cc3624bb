//! Checks JSON values by JSON Schema, as far as the schemas of tools go.
//!
//! The keywords that are checked are those of [`keywords::KEYWORDS`], with the meaning that draft
//! 2020-12 gives them, and OpenAPI's `nullable`. Other keywords are ignored, as JSON Schema asks of
//! a validator that does not know them.

mod keywords;
mod number;
mod pattern;
#[cfg(test)]
mod tests;
mod usable;

use std::borrow::Cow;
use std::cell::Cell;

use serde_json::{Map, Value};

#[cfg(feature = "constrained")]
pub(super) use pattern::{ascii_classes, pattern_matches_empty};
pub(super) use usable::refuse_unusable;

/// The most schemas that may be applied within each other.
const MAX_DEPTH: usize = 256;

/// The most applications of a schema to a value in one check: references can double their number at
/// each level.
const MAX_STEPS: usize = 100_000;

/// The place in a value that breaks its schema, and the reason.
#[derive(Debug)]
pub(super) struct Violation {
    /// Keys and indices, the innermost first.
    path: Vec<String>,
    pub what: String,
}

impl Violation {
    pub fn new(what: impl Into<String>) -> Self {
        Self { path: vec![], what: what.into() }
    }

    fn at_key(mut self, key: &str) -> Self {
        self.path.push(format!(".{key}"));
        self
    }

    fn at_index(mut self, index: usize) -> Self {
        self.path.push(format!("[{index}]"));
        self
    }

    /// The path as `days[0].hour`; empty where the whole value is wrong.
    pub fn path(&self) -> String {
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        path.strip_prefix('.').map(str::to_owned).unwrap_or(path)
    }
}

/// Checks a value by a schema that [`refuse_unusable`] accepted.
pub(super) fn check(schema: &Value, value: &Value) -> Result<(), Violation> {
    check_within(schema, schema, value)
}

/// Checks a value by a part of the schema `root`, which references refer to.
pub(super) fn check_within(root: &Value, schema: &Value, value: &Value) -> Result<(), Violation> {
    Checker { root, depth: 0, steps: &Cell::new(0) }.check(schema, value)
}

/// The schema that a local reference names: `#` or `#/` and a JSON pointer.
pub(super) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    root.pointer(&percent_decoded(reference.strip_prefix('#')?))
}

fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        let (byte, length) = code.filter(|_| first == b'%').map_or((first, 1), |code| (code, 3));
        bytes.push(byte);
        rest = &rest[length..];
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// Two values are equal where their numbers are, however those are written.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => number::compare(one, other).is_eq(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let found = |(key, value): (&String, &Value)| other.get(key).is_some_and(|other| equal(value, other));
            one.len() == other.len() && one.iter().all(found)
        }
        _ => one == other,
    }
}

#[derive(Clone, Copy)]
struct Checker<'c> {
    root: &'c Value,
    depth: usize,
    steps: &'c Cell<usize>,
}

impl Checker<'_> {
    fn check(mut self, schema: &Value, value: &Value) -> Result<(), Violation> {
        self.depth += 1;
        self.steps.set(self.steps.get() + 1);
        if self.depth > MAX_DEPTH || self.steps.get() > MAX_STEPS {
            return Err(Violation::new("is too deep or too large to be checked by its schema"));
        }
        match schema {
            Value::Object(schema) => self.check_keywords(schema, value),
            Value::Bool(false) => Err(Violation::new("is not allowed")),
            _ => Ok(()),
        }
    }

    fn check_keywords(self, schema: &Map<String, Value>, value: &Value) -> Result<(), Violation> {
        if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
            return Ok(());
        }
        let present = keywords::KEYWORDS.iter().filter_map(|keyword| Some((keyword, schema.get(keyword.name)?)));
        for (keyword, argument) in present {
            (keyword.check)(self, schema, argument, value)?;
        }
        Ok(())
    }
}
