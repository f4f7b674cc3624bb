//! Translates JSON Schema into a Lark grammar for llguidance, where llguidance's own translation is
//! not exact.
//!
//! llguidance keeps the bounds of numbers as `f64` and `i64`, and leaves the digits of a number and
//! the depth of a value unbounded. The schemas of Rust types are therefore translated here as a
//! whole ([`Source::Type`]): each text that is complete can be read as the type. Of a schema that a
//! caller gives ([`Source::Schema`]), the parts around integers beyond 2^53 are translated here;
//! every other part is handed to llguidance as a `%json` block.

mod containers;
mod rules;
#[cfg(test)]
mod tests;
mod values;
mod wide;

use std::collections::HashMap;

use serde_json::{Map, Value};

pub use self::wide::has_wide_integers;
use self::{
    rules::{Place, Rules, literal},
    wide::with_small_integers,
};
use super::{JsonStyle, WHITE_SPACE};
use crate::error::{Error, Result};

type Object = Map<String, Value>;

/// The most levels that the parts of a schema may nest without a `$ref`.
const MAX_DEPTH: usize = 64;

/// Keywords that constrain a value and are not translated.
const UNSUPPORTED: [&str; 15] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Keywords that say nothing about a value.
const ANNOTATIONS: [&str; 15] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

const COMBINATORS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// The origin of a schema, which decides how keywords are read.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A Rust type of this name: `format` bounds numbers, and objects have the fields of the schema
    /// alone.
    Type(&'a str),
    /// A caller: the specification of JSON Schema holds.
    Schema,
}

/// Returns the Lark grammar of a schema.
///
/// # Errors
/// [`Error::Grammar`] for a keyword that is not supported; the message names the type, the field
/// and the keyword.
pub fn to_lark(schema: &Value, source: Source<'_>, style: JsonStyle) -> Result<String> {
    if let Source::Schema = source {
        values::check(&with_small_integers(schema)).map_err(Error::Grammar)?;
    }
    let mut translation = Translation {
        root: schema,
        source,
        style,
        rules: Rules::default(),
        references: HashMap::new(),
        pending: vec![],
    };
    let place = match source {
        Source::Type(name) => Place::new(format!("type `{name}`")),
        Source::Schema => Place::new("the schema".into()),
    };
    let start = translation.node(schema, &place, MAX_DEPTH)?;
    while let Some((pointer, rule)) = translation.pending.pop() {
        let target = translation.resolve(&pointer, &place)?;
        let name = pointer.rsplit('/').next().unwrap_or_default();
        let place = match source {
            Source::Type(_) if !name.is_empty() && name != "#" => Place::new(format!("type `{name}`")),
            _ => place.clone(),
        };
        let body = translation.node(target, &place, MAX_DEPTH)?;
        translation.rules.define(&rule, &body);
    }
    Ok(translation.finish(&start))
}

struct Translation<'a> {
    root: &'a Value,
    source: Source<'a>,
    style: JsonStyle,
    rules: Rules,
    /// The rule of each pointer that a `$ref` names.
    references: HashMap<String, String>,
    /// Pointers whose rules are not defined yet.
    pending: Vec<(String, String)>,
}

impl<'a> Translation<'a> {
    /// Translates a schema and returns the expression for it: a rule, a terminal or a literal.
    fn node(&mut self, schema: &Value, place: &Place, depth: usize) -> Result<String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(place.error(format!("the schema nests more than {MAX_DEPTH} levels deep: use `$ref`")));
        };
        match schema {
            Value::Bool(true) => Ok(self.any(place)?),
            Value::Bool(false) => Err(place.error("no value is valid by the schema `false`")),
            Value::Object(object) if self.is_leaf(schema) => Ok(self.leaf(object)),
            Value::Object(object) => self.object_schema(object, place, depth),
            _ => Err(place.error(format!("`{schema}` is not a schema: give an object or a boolean"))),
        }
    }

    /// Whether a schema is left to llguidance as it stands.
    fn is_leaf(&self, schema: &Value) -> bool {
        matches!(self.source, Source::Schema) && !has_wide_integers(schema) && !self.refers_to_wide(schema, &mut vec![])
    }

    fn refers_to_wide<'s>(&'s self, schema: &'s Value, seen: &mut Vec<&'s str>) -> bool {
        match schema {
            Value::Object(object) => object.iter().any(|(key, value)| match value.as_str().filter(|_| key == "$ref") {
                Some(pointer) if seen.contains(&pointer) => false,
                Some(pointer) => {
                    seen.push(pointer);
                    let target = pointer.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
                    target.is_some_and(|target| has_wide_integers(target) || self.refers_to_wide(target, seen))
                }
                None => self.refers_to_wide(value, seen),
            }),
            Value::Array(values) => values.iter().any(|value| self.refers_to_wide(value, seen)),
            _ => false,
        }
    }

    /// Returns the rule of a `%json` block with this schema.
    fn leaf(&mut self, schema: &Object) -> String {
        let mut block = schema.clone();
        for key in ["$defs", "definitions"] {
            if let (Source::Schema, Some(definitions)) = (self.source, self.root.get(key)) {
                block.insert(key.into(), definitions.clone());
            }
        }
        block.insert(super::OPTIONS.into(), self.style.options());
        self.rules.rule(format!("%json {}", Value::Object(block)))
    }

    fn object_schema(&mut self, schema: &Object, place: &Place, depth: usize) -> Result<String> {
        if let Some(key) = schema.keys().find(|key| UNSUPPORTED.contains(&key.as_str())) {
            return Err(place.unsupported(key));
        }
        if COMBINATORS.iter().any(|key| schema.contains_key(*key)) {
            return self.combined(schema, place, depth);
        }
        if let Some(constant) = schema.get("const") {
            return self.constants(std::slice::from_ref(constant), schema, place);
        }
        if let Some(constants) = schema.get("enum") {
            let constants = constants.as_array().ok_or_else(|| place.keyword("enum", "is not an array"))?;
            return self.constants(constants, schema, place);
        }
        if schema.keys().all(|key| ANNOTATIONS.contains(&key.as_str())) {
            return self.any(place);
        }
        let types = match schema.get("type") {
            Some(Value::String(name)) => vec![name.as_str()],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            Some(other) => return Err(place.keyword("type", &format!("is `{other}`, not a name or a list of names"))),
            None => vec!["null", "boolean", "number", "string", "array", "object"],
        };
        let parts = types.into_iter().map(|name| self.typed(name, schema, place, depth));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        self.one_of(parts, place)
    }

    fn typed(&mut self, name: &str, schema: &Object, place: &Place, depth: usize) -> Result<String> {
        if schema.contains_key("not") && name != "integer" {
            return Err(place.unsupported("not"));
        }
        match name {
            "null" => Ok(literal("null")),
            "boolean" => Ok(self.rules.rule(r#""true" | "false""#.into())),
            "integer" => self.integer(schema, place),
            "number" => self.number(schema, place),
            "string" => self.string(schema, place),
            "array" => self.array(schema, place, depth),
            "object" => self.object(schema, place, depth),
            other => Err(place.keyword("type", &format!("is `{other}`, which is not a type of JSON"))),
        }
    }

    /// Translates a schema with `$ref`, `allOf`, `anyOf` or `oneOf`.
    fn combined(&mut self, schema: &Object, place: &Place, depth: usize) -> Result<String> {
        let assertions: Vec<&str> =
            schema.keys().map(String::as_str).filter(|key| !ANNOTATIONS.contains(key)).collect();
        match (assertions.as_slice(), schema.get("$ref")) {
            (["$ref"], Some(Value::String(pointer))) => self.reference(pointer, place),
            (["$ref"], _) => Err(place.keyword("$ref", "is not a string")),
            ([key @ ("anyOf" | "oneOf")], _) => {
                let parts = array_of(schema, key, place)?;
                let parts = parts.iter().map(|part| self.node(part, place, depth)).collect::<Result<Vec<_>>>()?;
                self.one_of(parts, place)
            }
            _ => {
                let parts = self.merged(schema, place)?;
                let parts = parts.iter().map(|part| self.node(part, place, depth)).collect::<Result<Vec<_>>>()?;
                self.one_of(parts, place)
            }
        }
    }

    /// Merges one combinator with the keywords beside it; what is left of the combinators is in the
    /// results.
    fn merged(&self, schema: &Object, place: &Place) -> Result<Vec<Value>> {
        let Some(key) = COMBINATORS.into_iter().find(|key| schema.contains_key(*key)) else { return Ok(vec![]) };
        let mut rest = schema.clone();
        let removed = rest.shift_remove(key).unwrap_or_default();
        let merge = |part: &Value| {
            let part = part.as_object().ok_or_else(|| place.keyword(key, "holds something other than an object"))?;
            merge(&rest, part, place)
        };
        match (key, &removed) {
            ("$ref", Value::String(pointer)) => Ok(vec![merge(self.resolve(pointer, place)?)?.into()]),
            ("allOf", Value::Array(parts)) => {
                let mut all = rest.clone();
                for part in parts {
                    let part =
                        part.as_object().ok_or_else(|| place.keyword(key, "holds something other than an object"))?;
                    all = self::merge(&all, part, place)?;
                }
                Ok(vec![all.into()])
            }
            ("anyOf" | "oneOf", Value::Array(parts)) => parts.iter().map(|part| Ok(merge(part)?.into())).collect(),
            _ => Err(place.keyword(key, "has a value of the wrong type")),
        }
    }

    fn reference(&mut self, pointer: &str, place: &Place) -> Result<String> {
        if let Some(rule) = self.references.get(pointer) {
            return Ok(rule.clone());
        }
        self.resolve(pointer, place)?;
        let rule = self.rules.reserve();
        self.references.insert(pointer.into(), rule.clone());
        self.pending.push((pointer.into(), rule.clone()));
        Ok(rule)
    }

    fn resolve(&self, pointer: &str, place: &Place) -> Result<&'a Value> {
        let target = pointer.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        target.ok_or_else(|| place.keyword("$ref", &format!("names `{pointer}`, which is not in the schema")))
    }

    /// Returns an expression for a choice.
    fn one_of(&mut self, mut parts: Vec<String>, place: &Place) -> Result<String> {
        match parts.len() {
            0 => Err(place.error("no value is valid: there is nothing to choose from")),
            1 => Ok(parts.remove(0)),
            _ => Ok(self.rules.rule(parts.join(" | "))),
        }
    }

    /// Returns an expression for the values that are listed and of the type.
    fn constants(&mut self, constants: &[Value], schema: &Object, place: &Place) -> Result<String> {
        let others = schema.keys().find(|key| {
            !["const", "enum", "type", "format"].contains(&key.as_str()) && !ANNOTATIONS.contains(&key.as_str())
        });
        if let Some(key) = others {
            return Err(place.keyword(key, "is not supported beside `const` or `enum`"));
        }
        let is_of_type = |value: &&Value| match schema.get("type") {
            Some(Value::String(name)) => is_of_type(value, name),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(|name| is_of_type(value, name)),
            _ => true,
        };
        let parts = constants.iter().filter(is_of_type).map(|value| literal(&value.to_string())).collect();
        self.one_of(parts, place)
    }

    fn finish(self, start: &str) -> String {
        let white_space = match self.style {
            JsonStyle::Compact => String::new(),
            JsonStyle::Spaced => format!("%llguidance {{\"ignore_once\": true}}\n%ignore /{WHITE_SPACE}/\n"),
        };
        format!("{white_space}start: {start}\n{}", self.rules.into_text())
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn array_of<'s>(schema: &'s Object, key: &str, place: &Place) -> Result<&'s [Value]> {
    let parts = schema.get(key).and_then(Value::as_array);
    parts.map(Vec::as_slice).ok_or_else(|| place.keyword(key, "is not an array"))
}

/// Returns a schema with the keywords of both.
fn merge(one: &Object, other: &Object, place: &Place) -> Result<Object> {
    let mut both = one.clone();
    for (key, value) in other.iter().filter(|(key, _)| !ANNOTATIONS.contains(&key.as_str())) {
        match both.get(key) {
            Some(present) if present != value => {
                return Err(place.keyword(key, "differs in two parts of one value, which is not supported"));
            }
            _ => _ = both.insert(key.clone(), value.clone()),
        }
    }
    Ok(both)
}

impl Place {
    fn unsupported(&self, key: &str) -> Error {
        self.keyword(key, "is not supported")
    }
}
