//! Translates JSON Schema into Lark grammars, where llguidance's own translation is not exact.
//!
//! llguidance stores the bounds of numbers as `f64` and `i64`, and limits neither the digits of a
//! number nor the depth of a value. Therefore schemas of Rust types are translated here completely
//! ([`SchemaOrigin::Type`]), so that every complete text can be read as the type. In schemas of
//! callers ([`SchemaOrigin::Caller`]), the parts around integers beyond 2^53 are translated here,
//! and the rest is passed to llguidance as `%json` blocks.

mod containers;
mod multiples;
mod rules;
#[cfg(test)]
mod tests;
mod values;
mod wide;

use std::collections::HashMap;

use serde_json::Value;

pub use self::{multiples::check_multiples, wide::has_wide_integers};
use self::{
    rules::{GrammarRules, SchemaPlace, literal},
    wide::with_small_integers,
};
use super::{JsonObject, JsonStyle, WHITE_SPACE};
use crate::error::{Error, Result};

/// The deepest nesting of subschemas without a `$ref`.
const MAX_DEPTH: usize = 64;

/// Keywords that restrict values and are not supported.
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

/// Keywords that do not restrict values.
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

/// The origin of a schema, which determines the meaning of some keywords.
#[derive(Clone, Copy)]
pub enum SchemaOrigin<'a> {
    /// A Rust type with this name: `format` limits numbers, and objects have only the fields of the
    /// schema.
    Type(&'a str),
    /// A caller: keywords have the meaning of the JSON Schema specification.
    Caller,
}

/// Returns the Lark grammar of a schema.
///
/// # Errors
/// [`Error::Grammar`] for a keyword that is not supported; the message names the type, the field
/// and the keyword.
pub fn to_lark(schema: &Value, origin: SchemaOrigin<'_>, style: JsonStyle) -> Result<String> {
    if let SchemaOrigin::Caller = origin {
        values::check(&with_small_integers(schema)).map_err(Error::Grammar)?;
    }
    let mut translation = Translation {
        root: schema,
        origin,
        style,
        rules: GrammarRules::default(),
        references: HashMap::new(),
        pending: vec![],
    };
    let place = match origin {
        SchemaOrigin::Type(name) => SchemaPlace::new(format!("type `{name}`")),
        SchemaOrigin::Caller => SchemaPlace::new("the schema".into()),
    };
    let start = translation.node(schema, &place, MAX_DEPTH)?;
    while let Some((pointer, rule)) = translation.pending.pop() {
        let target = translation.resolve(&pointer, &place)?;
        let name = pointer.rsplit('/').next().unwrap_or_default();
        let place = match origin {
            SchemaOrigin::Type(_) if !name.is_empty() && name != "#" => SchemaPlace::new(format!("type `{name}`")),
            _ => place.clone(),
        };
        let body = translation.node(target, &place, MAX_DEPTH)?;
        translation.rules.define(&rule, &body);
    }
    Ok(translation.finish(&start))
}

struct Translation<'a> {
    root: &'a Value,
    origin: SchemaOrigin<'a>,
    style: JsonStyle,
    rules: GrammarRules,
    /// Names of rules by the pointer of their `$ref`.
    references: HashMap<String, String>,
    /// Pointers and names of rules that are not defined yet.
    pending: Vec<(String, String)>,
}

impl<'a> Translation<'a> {
    /// Translates a schema, and returns its expression: the name of a rule or terminal, or a
    /// literal.
    fn node(&mut self, schema: &Value, place: &SchemaPlace, depth: usize) -> Result<String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(place.error(format!("the schema nests more than {MAX_DEPTH} levels: use `$ref`")));
        };
        match schema {
            Value::Bool(true) => Ok(self.any(place)?),
            Value::Bool(false) => Err(place.error("no value is valid by the schema `false`")),
            Value::Object(object) if self.is_leaf(schema) => Ok(self.leaf(object)),
            Value::Object(object) => self.object_schema(object, place, depth),
            _ => Err(place.error(format!("`{schema}` is not a schema: give an object or a boolean"))),
        }
    }

    /// Returns whether a schema is passed to llguidance as it is.
    fn is_leaf(&self, schema: &Value) -> bool {
        matches!(self.origin, SchemaOrigin::Caller)
            && !has_wide_integers(schema)
            && !self.refers_to_wide(schema, &mut vec![])
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

    /// Returns the rule of a `%json` block with a schema.
    fn leaf(&mut self, schema: &JsonObject) -> String {
        let mut block = schema.clone();
        for key in ["$defs", "definitions"] {
            if let (SchemaOrigin::Caller, Some(definitions)) = (self.origin, self.root.get(key)) {
                block.insert(key.into(), definitions.clone());
            }
        }
        block.insert(super::OPTIONS.into(), self.style.options());
        self.rules.rule(format!("%json {}", Value::Object(block)))
    }

    fn object_schema(&mut self, schema: &JsonObject, place: &SchemaPlace, depth: usize) -> Result<String> {
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

    fn typed(&mut self, name: &str, schema: &JsonObject, place: &SchemaPlace, depth: usize) -> Result<String> {
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
            other => Err(place.keyword("type", &format!("is `{other}`, which is not a JSON type"))),
        }
    }

    /// Translates a schema with `$ref`, `allOf`, `anyOf` or `oneOf`.
    fn combined(&mut self, schema: &JsonObject, place: &SchemaPlace, depth: usize) -> Result<String> {
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

    /// Merges one combinator with the keywords next to it. The results contain the remaining
    /// combinators.
    fn merged(&self, schema: &JsonObject, place: &SchemaPlace) -> Result<Vec<Value>> {
        let Some(key) = COMBINATORS.into_iter().find(|key| schema.contains_key(*key)) else { return Ok(vec![]) };
        let mut rest = schema.clone();
        let removed = rest.shift_remove(key).unwrap_or_default();
        let merge = |part: &Value| {
            let part = part.as_object().ok_or_else(|| place.keyword(key, "contains a schema that is not an object"))?;
            merge(&rest, part, place)
        };
        match (key, &removed) {
            ("$ref", Value::String(pointer)) => Ok(vec![merge(self.resolve(pointer, place)?)?.into()]),
            ("allOf", Value::Array(parts)) => {
                let mut all = rest.clone();
                for part in parts {
                    let part = part
                        .as_object()
                        .ok_or_else(|| place.keyword(key, "contains a schema that is not an object"))?;
                    all = self::merge(&all, part, place)?;
                }
                Ok(vec![all.into()])
            }
            ("anyOf" | "oneOf", Value::Array(parts)) => parts.iter().map(|part| Ok(merge(part)?.into())).collect(),
            _ => Err(place.keyword(key, "has a value of the wrong type")),
        }
    }

    fn reference(&mut self, pointer: &str, place: &SchemaPlace) -> Result<String> {
        if let Some(rule) = self.references.get(pointer) {
            return Ok(rule.clone());
        }
        self.resolve(pointer, place)?;
        let rule = self.rules.reserve();
        self.references.insert(pointer.into(), rule.clone());
        self.pending.push((pointer.into(), rule.clone()));
        Ok(rule)
    }

    fn resolve(&self, pointer: &str, place: &SchemaPlace) -> Result<&'a Value> {
        let target = pointer.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        target.ok_or_else(|| place.keyword("$ref", &format!("names `{pointer}`, which is not in the schema")))
    }

    /// Returns an expression of one of the parts.
    fn one_of(&mut self, mut parts: Vec<String>, place: &SchemaPlace) -> Result<String> {
        match parts.len() {
            0 => Err(place.error("no value is valid: the list of alternatives is empty")),
            1 => Ok(parts.remove(0)),
            _ => Ok(self.rules.rule(parts.join(" | "))),
        }
    }

    /// Returns an expression of the listed values that have the schema's type.
    fn constants(&mut self, constants: &[Value], schema: &JsonObject, place: &SchemaPlace) -> Result<String> {
        let unsupported = schema.keys().find(|key| {
            !["const", "enum", "type", "format"].contains(&key.as_str()) && !ANNOTATIONS.contains(&key.as_str())
        });
        if let Some(key) = unsupported {
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

fn array_of<'s>(schema: &'s JsonObject, key: &str, place: &SchemaPlace) -> Result<&'s [Value]> {
    let parts = schema.get(key).and_then(Value::as_array);
    parts.map(Vec::as_slice).ok_or_else(|| place.keyword(key, "is not an array"))
}

/// Returns a schema with the keywords of both.
fn merge(left: &JsonObject, right: &JsonObject, place: &SchemaPlace) -> Result<JsonObject> {
    let mut both = left.clone();
    for (key, value) in right.iter().filter(|(key, _)| !ANNOTATIONS.contains(&key.as_str())) {
        match both.get(key) {
            Some(present) if present != value => {
                return Err(place.keyword(key, "is set twice for one value, which is not supported"));
            }
            _ => _ = both.insert(key.clone(), value.clone()),
        }
    }
    Ok(both)
}

impl SchemaPlace {
    fn unsupported(&self, key: &str) -> Error {
        self.keyword(key, "is not supported")
    }
}
