//! The keywords that are checked, in the order in which violations are reported.

use serde_json::{Map, Value};

use super::{
    checker::{ValueChecker, Violation, equal, resolve},
    number, pattern,
};

pub(super) struct Keyword {
    pub name: &'static str,
    pub argument: Argument,
    pub check: KeywordCheck,
}

/// Checks a value. Takes the checker, the schema that contains the keyword, the keyword's argument
/// and the value.
type KeywordCheck = fn(ValueChecker<'_>, &Map<String, Value>, &Value, &Value) -> Result<(), Violation>;

/// The type of a keyword's argument.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Argument {
    Schema,
    /// A non-empty list of schemas.
    Schemas,
    /// Schemas by name.
    NamedSchemas,
    /// Schemas by regular expression.
    PatternSchemas,
    /// The name of a type, or a list of names.
    Types,
    /// A list of strings.
    Names,
    Values,
    AnyValue,
    Number,
    /// A number above zero.
    Unit,
    /// A non-negative integer.
    Count,
    Pattern,
    /// A reference to another part of the same schema.
    Reference,
    Flag,
}

use Argument::*;

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword { name: "type", argument: Types, check: types },
    Keyword { name: "enum", argument: Values, check: enumeration },
    Keyword { name: "const", argument: AnyValue, check: constant },
    Keyword { name: "nullable", argument: Flag, check: |_, _, _, _| Ok(()) },
    Keyword {
        name: "minimum",
        argument: Number,
        check: |_, _, minimum, value| bound(value, minimum, "at least", |o| o.is_ge()),
    },
    Keyword {
        name: "maximum",
        argument: Number,
        check: |_, _, maximum, value| bound(value, maximum, "at most", |o| o.is_le()),
    },
    Keyword {
        name: "exclusiveMinimum",
        argument: Number,
        check: |_, _, minimum, value| bound(value, minimum, "more than", |o| o.is_gt()),
    },
    Keyword {
        name: "exclusiveMaximum",
        argument: Number,
        check: |_, _, maximum, value| bound(value, maximum, "less than", |o| o.is_lt()),
    },
    Keyword { name: "multipleOf", argument: Unit, check: multiple_of },
    Keyword {
        name: "minLength",
        argument: Count,
        check: |_, _, minimum, value| count(length(value), minimum, "characters", "at least"),
    },
    Keyword {
        name: "maxLength",
        argument: Count,
        check: |_, _, maximum, value| count(length(value), maximum, "characters", "at most"),
    },
    Keyword { name: "pattern", argument: Pattern, check: matches_pattern },
    Keyword { name: "required", argument: Names, check: required },
    Keyword { name: "properties", argument: NamedSchemas, check: properties },
    Keyword { name: "patternProperties", argument: PatternSchemas, check: pattern_properties },
    Keyword { name: "additionalProperties", argument: Schema, check: additional_properties },
    Keyword {
        name: "minProperties",
        argument: Count,
        check: |_, _, minimum, value| count(size(value), minimum, "properties", "at least"),
    },
    Keyword {
        name: "maxProperties",
        argument: Count,
        check: |_, _, maximum, value| count(size(value), maximum, "properties", "at most"),
    },
    Keyword { name: "prefixItems", argument: Schemas, check: prefix_items },
    Keyword { name: "items", argument: Schema, check: items },
    Keyword {
        name: "minItems",
        argument: Count,
        check: |_, _, minimum, value| count(items_of(value), minimum, "items", "at least"),
    },
    Keyword {
        name: "maxItems",
        argument: Count,
        check: |_, _, maximum, value| count(items_of(value), maximum, "items", "at most"),
    },
    Keyword { name: "uniqueItems", argument: Flag, check: unique_items },
    Keyword { name: "$ref", argument: Reference, check: reference },
    Keyword { name: "allOf", argument: Schemas, check: all_of },
    Keyword { name: "anyOf", argument: Schemas, check: any_of },
    Keyword { name: "oneOf", argument: Schemas, check: one_of },
    Keyword { name: "not", argument: Schema, check: not },
];

pub(super) const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "null", "array", "object"];

fn fails<T>(reason: impl Into<String>) -> Result<T, Violation> {
    Err(Violation::new(reason))
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => number::is_integer(value),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn types(_: ValueChecker<'_>, _: &Map<String, Value>, names: &Value, value: &Value) -> Result<(), Violation> {
    let names: Vec<&str> = match names {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        name => name.as_str().into_iter().collect(),
    };
    if names.iter().any(|name| is(value, name)) {
        return Ok(());
    }
    fails(format!("must be of type {}, but is {}", names.join(" or "), excerpt(value)))
}

/// Returns the beginning of a value's JSON, for errors.
fn excerpt(value: &Value) -> String {
    const MAX_CHARS: usize = 100;
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

fn enumeration(_: ValueChecker<'_>, _: &Map<String, Value>, allowed: &Value, value: &Value) -> Result<(), Violation> {
    let allowed = allowed.as_array().map_or(&[][..], Vec::as_slice);
    if allowed.iter().any(|allowed| equal(allowed, value)) {
        return Ok(());
    }
    let allowed: Vec<String> = allowed.iter().map(excerpt).collect();
    fails(format!("must be one of {}, but is {}", allowed.join(", "), excerpt(value)))
}

fn constant(_: ValueChecker<'_>, _: &Map<String, Value>, allowed: &Value, value: &Value) -> Result<(), Violation> {
    if equal(allowed, value) {
        Ok(())
    } else {
        fails(format!("must be {}, but is {}", excerpt(allowed), excerpt(value)))
    }
}

fn bound(value: &Value, bound: &Value, relation: &str, holds: fn(std::cmp::Ordering) -> bool) -> Result<(), Violation> {
    match (value, bound) {
        (Value::Number(number), Value::Number(bound)) if !holds(number::compare(number, bound)) => {
            fails(format!("must be {relation} {bound}, but is {number}"))
        }
        _ => Ok(()),
    }
}

fn multiple_of(_: ValueChecker<'_>, _: &Map<String, Value>, unit: &Value, value: &Value) -> Result<(), Violation> {
    match (value, unit) {
        (Value::Number(number), Value::Number(unit)) if !number::is_multiple(number, unit) => {
            fails(format!("must be a multiple of {unit}, but is {number}"))
        }
        _ => Ok(()),
    }
}

fn length(value: &Value) -> Option<usize> {
    value.as_str().map(|text| text.chars().count())
}

fn size(value: &Value) -> Option<usize> {
    value.as_object().map(Map::len)
}

fn items_of(value: &Value) -> Option<usize> {
    value.as_array().map(Vec::len)
}

/// Checks a count, which is `None` for values of other types; `relation` is `at least` or
/// `at most`.
fn count(found: Option<usize>, limit: &Value, unit: &str, relation: &str) -> Result<(), Violation> {
    let (Some(found), Some(limit)) = (found, limit.as_f64()) else { return Ok(()) };
    let holds = if relation == "at least" { found as f64 >= limit } else { found as f64 <= limit };
    if holds { Ok(()) } else { fails(format!("must have {relation} {limit} {unit}, but has {found}")) }
}

fn matches_pattern(
    _: ValueChecker<'_>,
    _: &Map<String, Value>,
    pattern: &Value,
    value: &Value,
) -> Result<(), Violation> {
    let (Some(text), Some(pattern)) = (value.as_str(), pattern.as_str()) else { return Ok(()) };
    if pattern::compile(pattern).map_err(Violation::new)?.is_match(text) {
        return Ok(());
    }
    fails(format!("must match the expression `{pattern}`, but is {}", excerpt(value)))
}

fn required(_: ValueChecker<'_>, _: &Map<String, Value>, names: &Value, value: &Value) -> Result<(), Violation> {
    let (Some(object), Some(names)) = (value.as_object(), names.as_array()) else { return Ok(()) };
    match names.iter().filter_map(Value::as_str).find(|name| !object.contains_key(*name)) {
        Some(name) => Err(Violation::new("is missing, but required").at_key(name)),
        None => Ok(()),
    }
}

fn properties(
    checker: ValueChecker<'_>,
    _: &Map<String, Value>,
    schemas: &Value,
    value: &Value,
) -> Result<(), Violation> {
    let (Some(object), Some(schemas)) = (value.as_object(), schemas.as_object()) else { return Ok(()) };
    let mut present = object.iter().filter_map(|(key, value)| Some((key, value, schemas.get(key)?)));
    present.try_for_each(|(key, value, schema)| checker.check(schema, value).map_err(|violation| violation.at_key(key)))
}

fn pattern_properties(
    checker: ValueChecker<'_>,
    _: &Map<String, Value>,
    schemas: &Value,
    value: &Value,
) -> Result<(), Violation> {
    let (Some(object), Some(schemas)) = (value.as_object(), schemas.as_object()) else { return Ok(()) };
    for (pattern, schema) in schemas {
        let pattern = pattern::compile(pattern).map_err(Violation::new)?;
        let mut matching = object.iter().filter(|(key, _)| pattern.is_match(key.as_str()));
        matching
            .try_for_each(|(key, value)| checker.check(schema, value).map_err(|violation| violation.at_key(key)))?;
    }
    Ok(())
}

fn additional_properties(
    checker: ValueChecker<'_>,
    siblings: &Map<String, Value>,
    schema: &Value,
    value: &Value,
) -> Result<(), Violation> {
    let Some(object) = value.as_object() else { return Ok(()) };
    let named = siblings.get("properties").and_then(Value::as_object);
    let patterns = siblings.get("patternProperties").and_then(Value::as_object);
    let patterns = patterns.into_iter().flat_map(Map::keys).map(|pattern| pattern::compile(pattern));
    let patterns: Vec<_> = patterns.collect::<Result<_, _>>().map_err(Violation::new)?;
    for (key, value) in object {
        let known = named.is_some_and(|named| named.contains_key(key));
        if known || patterns.iter().any(|pattern| pattern.is_match(key.as_str())) {
            continue;
        }
        let checked = if schema == false { fails(unknown_key(named)) } else { checker.check(schema, value) };
        checked.map_err(|violation| violation.at_key(key))?;
    }
    Ok(())
}

fn unknown_key(named: Option<&Map<String, Value>>) -> String {
    let known: Vec<String> = named.into_iter().flat_map(Map::keys).map(|key| format!("`{key}`")).collect();
    if known.is_empty() {
        return "is not known: no properties are allowed".to_owned();
    }
    format!("is not known: known are {}", known.join(", "))
}

fn prefix_items(
    checker: ValueChecker<'_>,
    _: &Map<String, Value>,
    schemas: &Value,
    value: &Value,
) -> Result<(), Violation> {
    let (Some(values), Some(schemas)) = (value.as_array(), schemas.as_array()) else { return Ok(()) };
    let mut pairs = values.iter().zip(schemas).enumerate();
    pairs.try_for_each(|(index, (value, schema))| {
        checker.check(schema, value).map_err(|violation| violation.at_index(index))
    })
}

fn items(
    checker: ValueChecker<'_>,
    siblings: &Map<String, Value>,
    schema: &Value,
    value: &Value,
) -> Result<(), Violation> {
    let Some(values) = value.as_array() else { return Ok(()) };
    let first = siblings.get("prefixItems").and_then(items_of).unwrap_or(0);
    let mut rest = values.iter().enumerate().skip(first);
    rest.try_for_each(|(index, value)| checker.check(schema, value).map_err(|violation| violation.at_index(index)))
}

fn unique_items(_: ValueChecker<'_>, _: &Map<String, Value>, unique: &Value, value: &Value) -> Result<(), Violation> {
    let Some(values) = value.as_array().filter(|_| unique == true) else { return Ok(()) };
    let repeated = |(index, value): &(usize, &Value)| values[..*index].iter().any(|earlier| equal(earlier, value));
    match values.iter().enumerate().find(repeated) {
        Some((index, value)) => Err(Violation::new(format!("repeats {}", excerpt(value))).at_index(index)),
        None => Ok(()),
    }
}

fn reference(
    checker: ValueChecker<'_>,
    _: &Map<String, Value>,
    reference: &Value,
    value: &Value,
) -> Result<(), Violation> {
    match reference.as_str().and_then(|reference| resolve(checker.root, reference)) {
        Some(schema) => checker.check(schema, value),
        None => fails(format!("has a schema that refers to {reference}, which does not exist")),
    }
}

fn all_of(checker: ValueChecker<'_>, _: &Map<String, Value>, schemas: &Value, value: &Value) -> Result<(), Violation> {
    schemas.as_array().into_iter().flatten().try_for_each(|schema| checker.check(schema, value))
}

fn any_of(checker: ValueChecker<'_>, _: &Map<String, Value>, schemas: &Value, value: &Value) -> Result<(), Violation> {
    let mut reasons = vec![];
    for schema in schemas.as_array().into_iter().flatten() {
        match checker.check(schema, value) {
            Ok(()) => return Ok(()),
            Err(violation) => reasons.push(violation),
        }
    }
    fails(format!("is not valid for any alternative: {}", joined(&reasons)))
}

fn joined(reasons: &[Violation]) -> String {
    let reason = |violation: &Violation| format!("{} {}", violation.path(), violation.reason).trim_start().to_owned();
    reasons.iter().map(reason).collect::<Vec<_>>().join("; or ")
}

fn one_of(
    checker: ValueChecker<'_>,
    siblings: &Map<String, Value>,
    schemas: &Value,
    value: &Value,
) -> Result<(), Violation> {
    let valid = schemas.as_array().into_iter().flatten().filter(|schema| checker.check(schema, value).is_ok()).count();
    match valid {
        0 => any_of(checker, siblings, schemas, value),
        1 => Ok(()),
        _ => fails(format!("must be valid for exactly one alternative, but is valid for {valid}")),
    }
}

fn not(checker: ValueChecker<'_>, _: &Map<String, Value>, schema: &Value, value: &Value) -> Result<(), Violation> {
    match checker.check(schema, value) {
        Err(_) => Ok(()),
        Ok(()) => fails(format!("must not be valid for `{schema}`, but is {}", excerpt(value))),
    }
}
