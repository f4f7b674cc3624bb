//! Finds the integers of a schema that llguidance would round.

use serde_json::{Value, json};

/// 2^53; `f64` holds every integer below it.
pub const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns whether a schema has integers that llguidance would round.
pub fn has_wide_integers(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.iter().any(|(key, value)| is_wide_limit(key, value) || has_wide_integers(value))
        }
        Value::Array(values) => values.iter().any(has_wide_integers),
        _ => false,
    }
}

fn is_wide_limit(key: &str, value: &Value) -> bool {
    let is_wide = |value: &Value| value.as_f64().is_some_and(|number| number.abs() >= EXACT);
    match (key, value) {
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "const", value) => is_wide(value),
        ("enum", Value::Array(values)) => values.iter().any(is_wide),
        _ => false,
    }
}

/// Returns the schema with its wide integers replaced by smaller ones, so that llguidance can check
/// the rest of it.
pub fn with_small_integers(schema: &Value) -> Value {
    // The replacements keep upper limits above lower ones.
    let small = |key: &str, value: &Value| match (value.as_f64(), key) {
        (Some(number), _) if number.abs() < EXACT => value.clone(),
        (Some(0.0..), "maximum" | "exclusiveMaximum") => json!(2.0 * EXACT),
        (Some(0.0..), _) => json!(EXACT),
        (Some(_), "minimum" | "exclusiveMinimum") => json!(-2.0 * EXACT),
        (Some(_), _) => json!(-EXACT),
        (None, _) => value.clone(),
    };
    match schema {
        Value::Object(object) => {
            let fields = object.iter().map(|(key, value)| match value {
                Value::Array(values) if is_wide_limit(key, value) => {
                    (key.clone(), values.iter().map(|value| small(key, value)).collect())
                }
                value if is_wide_limit(key, value) => (key.clone(), small(key, value)),
                value => (key.clone(), with_small_integers(value)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(values) => values.iter().map(with_small_integers).collect(),
        value => value.clone(),
    }
}
