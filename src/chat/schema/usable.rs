//! Rejects schemas that values cannot be checked against, before a model sees them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    checker::MAX_DEPTH,
    keywords::{Argument, KEYWORDS, TYPES},
    pattern, resolve,
};

/// Returns an error for a schema in which a checked keyword has an argument of the wrong type, or a
/// reference has no target. The error names the keyword and its place, and completes the sentence
/// "the schema ..".
pub(in crate::chat) fn refuse_unusable(schema: &Value) -> Result<(), String> {
    SchemaWalker { root: schema, followed: BTreeSet::new() }.schema(schema, "", 0)
}

struct SchemaWalker<'s> {
    root: &'s Value,
    /// The references that were followed.
    followed: BTreeSet<&'s str>,
}

impl<'s> SchemaWalker<'s> {
    fn schema(&mut self, schema: &'s Value, place: &str, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("nests schemas more than {MAX_DEPTH} deep"));
        }
        let keywords = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(keywords) => keywords,
            other => return Err(refused(other, place, "a schema")),
        };
        for keyword in KEYWORDS {
            if let Some(argument) = keywords.get(keyword.name) {
                let place = format!("{place}/{}", keyword.name);
                self.argument(keyword.argument, argument, &place, depth + 1)?;
            }
        }
        Ok(())
    }

    fn argument(&mut self, kind: Argument, argument: &'s Value, place: &str, depth: usize) -> Result<(), String> {
        let text = || argument.as_str().ok_or_else(|| refused(argument, place, "a string"));
        match kind {
            Argument::Schema => self.schema(argument, place, depth),
            Argument::Schemas => {
                let schemas = argument.as_array().filter(|schemas| !schemas.is_empty());
                let schemas = schemas.ok_or_else(|| refused(argument, place, "a list of schemas"))?;
                let mut schemas = schemas.iter().enumerate();
                schemas.try_for_each(|(index, schema)| self.schema(schema, &format!("{place}/{index}"), depth))
            }
            Argument::NamedSchemas | Argument::PatternSchemas => {
                let schemas = argument.as_object().ok_or_else(|| refused(argument, place, "an object of schemas"))?;
                schemas.iter().try_for_each(|(name, schema)| {
                    if kind == Argument::PatternSchemas {
                        pattern::compile(name).map_err(|reason| format!("has a key {}: {reason}", located(place)))?;
                    }
                    self.schema(schema, &format!("{place}/{name}"), depth)
                })
            }
            Argument::Pattern => match pattern::compile(text()?) {
                Ok(_) => Ok(()),
                Err(reason) => Err(format!("has an expression {}: {reason}", located(place))),
            },
            Argument::Reference => self.reference(text()?, place, depth),
            plain => match missing_type(plain, argument) {
                Some(required) => Err(refused(argument, place, required)),
                None => Ok(()),
            },
        }
    }

    fn reference(&mut self, reference: &'s str, place: &str, depth: usize) -> Result<(), String> {
        if !self.followed.insert(reference) {
            return Ok(());
        }
        match resolve(self.root, reference) {
            Some(schema) => self.schema(schema, reference, depth),
            None => Err(format!(
                "has the reference `{reference}` {}, which cannot be followed: refer to an existing part of the same \
                 schema, by `#` or `#/...`",
                located(place)
            )),
        }
    }
}

/// Returns the type that the argument should have, if it has another one.
fn missing_type(kind: Argument, argument: &Value) -> Option<&'static str> {
    let strings = || argument.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    let is_type = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    let (is_valid, required) = match kind {
        Argument::Types => {
            let types = argument.as_array().is_some_and(|names| !names.is_empty() && names.iter().all(is_type));
            (types || is_type(argument), "a JSON type or a list of types")
        }
        Argument::Names => (strings(), "a list of strings"),
        Argument::Values => (argument.is_array(), "a list"),
        Argument::Number => (argument.is_number(), "a number"),
        Argument::Unit => (argument.as_f64().is_some_and(|unit| unit > 0.0), "a number above zero"),
        Argument::Count => {
            let count = argument.as_f64().is_some_and(|count| count >= 0.0 && count.fract() == 0.0);
            (count, "a non-negative integer")
        }
        Argument::Flag => (argument.is_boolean(), "true or false"),
        _ => (true, ""),
    };
    (!is_valid).then_some(required)
}

fn refused(argument: &Value, place: &str, required: &str) -> String {
    format!("has {argument} {}, which must be {required}", located(place))
}

fn located(place: &str) -> String {
    if place.is_empty() { "at its root".to_owned() } else { format!("at `{place}`") }
}
