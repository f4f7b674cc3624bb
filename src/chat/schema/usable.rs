//! Refuses schemas that cannot be checked by, before a model is told of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::keywords::{Argument, KEYWORDS, TYPES};
use super::{MAX_DEPTH, pattern, resolve};

/// Refuses a schema in which a keyword that is checked has an argument of another form than JSON
/// Schema gives it, or a reference leads nowhere. The error names the keyword and its place.
pub(in crate::chat) fn refuse_unusable(schema: &Value) -> Result<(), String> {
    Walk { root: schema, referred: BTreeSet::new() }.schema(schema, "", 0)
}

struct Walk<'s> {
    root: &'s Value,
    /// The references that were followed.
    referred: BTreeSet<&'s str>,
}

impl<'s> Walk<'s> {
    fn schema(&mut self, schema: &'s Value, place: &str, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("nests schemas more than {MAX_DEPTH} deep"));
        }
        let keywords = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(keywords) => keywords,
            other => return Err(format!("has {other} {}, where a schema must be", located(place))),
        };
        for keyword in KEYWORDS {
            if let Some(argument) = keywords.get(keyword.name) {
                let place = format!("{place}/{}", keyword.name);
                self.argument(keyword.argument, argument, &place, depth + 1)?;
            }
        }
        Ok(())
    }

    fn argument(&mut self, form: Argument, argument: &'s Value, place: &str, depth: usize) -> Result<(), String> {
        let text = || argument.as_str().ok_or_else(|| refused(argument, place, "a string"));
        match form {
            Argument::Schema => self.schema(argument, place, depth),
            Argument::Schemas => {
                let schemas = argument.as_array().filter(|schemas| !schemas.is_empty());
                let schemas = schemas.ok_or_else(|| refused(argument, place, "a list of schemas"))?;
                let mut schemas = schemas.iter().enumerate();
                schemas.try_for_each(|(at, schema)| self.schema(schema, &format!("{place}/{at}"), depth))
            }
            Argument::NamedSchemas | Argument::PatternSchemas => {
                let schemas = argument.as_object().ok_or_else(|| refused(argument, place, "an object of schemas"))?;
                schemas.iter().try_for_each(|(name, schema)| {
                    if form == Argument::PatternSchemas {
                        pattern::compile(name).map_err(|what| format!("has a key {}: {what}", located(place)))?;
                    }
                    self.schema(schema, &format!("{place}/{name}"), depth)
                })
            }
            Argument::Pattern => match pattern::compile(text()?) {
                Ok(_) => Ok(()),
                Err(what) => Err(format!("has an expression {}: {what}", located(place))),
            },
            Argument::Reference => self.reference(text()?, place, depth),
            plain => match wanted(plain, argument) {
                Some(wanted) => Err(refused(argument, place, wanted)),
                None => Ok(()),
            },
        }
    }

    fn reference(&mut self, reference: &'s str, place: &str, depth: usize) -> Result<(), String> {
        if !self.referred.insert(reference) {
            return Ok(());
        }
        match resolve(self.root, reference) {
            Some(schema) => self.schema(schema, reference, depth),
            None => Err(format!(
                "has the reference `{reference}` {}: only `#` and `#/...`, to a part of the same schema that is there, \
                 can be followed",
                located(place)
            )),
        }
    }
}

/// The form that the argument must have and has not.
fn wanted(form: Argument, argument: &Value) -> Option<&'static str> {
    let strings = || argument.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    let is_type = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    let (holds, wanted) = match form {
        Argument::Types => {
            let types = argument.as_array().is_some_and(|names| !names.is_empty() && names.iter().all(is_type));
            (types || is_type(argument), "a type of JSON or a list of types")
        }
        Argument::Names => (strings(), "a list of strings"),
        Argument::Values => (argument.is_array(), "a list"),
        Argument::Number => (argument.is_number(), "a number"),
        Argument::Unit => (argument.as_f64().is_some_and(|unit| unit > 0.0), "a number above zero"),
        Argument::Count => {
            let count = argument.as_f64().is_some_and(|count| count >= 0.0 && count.fract() == 0.0);
            (count, "an integer of at least zero")
        }
        Argument::Flag => (argument.is_boolean(), "true or false"),
        _ => (true, ""),
    };
    (!holds).then_some(wanted)
}

fn refused(argument: &Value, place: &str, wanted: &str) -> String {
    format!("has {argument} {}, where {wanted} must be", located(place))
}

fn located(place: &str) -> String {
    if place.is_empty() { "at its root".to_owned() } else { format!("at `{place}`") }
}
