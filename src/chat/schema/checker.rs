//! Keeps the state of one check: its violations, references, and the equality of values.

use std::{borrow::Cow, cell::Cell};

use serde_json::{Map, Value};

use super::number;

/// The deepest nesting of schemas in one check.
pub(super) const MAX_DEPTH: usize = 256;

/// The largest number of schema applications in one check; references can double it at each level.
const MAX_STEPS: usize = 100_000;

/// A place in a value that is not valid, and the reason.
#[derive(Debug)]
pub(in crate::chat) struct Violation {
    /// Keys and indices, the innermost first.
    path: Vec<String>,
    /// The reason; it completes the sentence "the value ..".
    pub reason: String,
}

impl Violation {
    pub fn new(reason: impl Into<String>) -> Self {
        Self { path: vec![], reason: reason.into() }
    }

    pub fn at_key(mut self, key: &str) -> Self {
        self.path.push(format!(".{key}"));
        self
    }

    pub fn at_index(mut self, index: usize) -> Self {
        self.path.push(format!("[{index}]"));
        self
    }

    /// Returns the path, as in `days[0].hour`; empty for the whole value.
    pub fn path(&self) -> String {
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        path.strip_prefix('.').map(str::to_owned).unwrap_or(path)
    }
}

/// Returns the schema of a local reference: `#`, or `#/` and a JSON pointer.
pub(in crate::chat) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
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

/// Returns whether two values are equal; numbers are compared by value, so that `1` equals `1.0`.
pub(in crate::chat) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => number::compare(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let found = |(key, value): (&String, &Value)| right.get(key).is_some_and(|right| equal(value, right));
            left.len() == right.len() && left.iter().all(found)
        }
        _ => left == right,
    }
}

/// Checks a value against the keywords of a schema object.
pub(super) type CheckKeywords = fn(ValueChecker<'_>, &Map<String, Value>, &Value) -> Result<(), Violation>;

/// A check against the schema `root`.
#[derive(Clone, Copy)]
pub(super) struct ValueChecker<'c> {
    pub root: &'c Value,
    depth: usize,
    steps: &'c Cell<usize>,
    check_keywords: CheckKeywords,
}

impl<'c> ValueChecker<'c> {
    pub fn new(root: &'c Value, steps: &'c Cell<usize>, check_keywords: CheckKeywords) -> Self {
        Self { root, depth: 0, steps, check_keywords }
    }

    pub fn check(mut self, schema: &Value, value: &Value) -> Result<(), Violation> {
        self.depth += 1;
        self.steps.set(self.steps.get() + 1);
        if self.depth > MAX_DEPTH || self.steps.get() > MAX_STEPS {
            return Err(Violation::new("is too deep or too large to be checked against its schema"));
        }
        match schema {
            Value::Object(schema) => (self.check_keywords)(self, schema, value),
            Value::Bool(false) => Err(Violation::new("is not allowed")),
            _ => Ok(()),
        }
    }
}
