//! Tests of the checks, with the JSON Schema Test Suite among them.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{check, refuse_unusable};

/// A group of the test suite: a description, a schema, and tests, each of a description, a value
/// and whether it is valid.
type TestGroup = (String, Value, Vec<(String, Value, bool)>);

#[test]
fn checks_agree_with_the_json_schema_test_suite() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/schema/draft2020-12.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let groups: Vec<TestGroup> = serde_json::from_str(&text).unwrap();
    let (mut wrong, mut count) = (vec![], 0);
    for (group, schema, tests) in groups {
        refuse_unusable(&schema).unwrap_or_else(|e| panic!("{group}: {e}"));
        for (test, value, valid) in tests {
            count += 1;
            let checked = check(&schema, &value);
            if checked.is_ok() != valid {
                wrong.push(format!("{group}, {test}: {checked:?} for {value}"));
            }
        }
    }
    assert!(wrong.is_empty() && count > 600, "{count}: {}", wrong.join("\n"));
}

#[test]
fn violations_name_the_path_in_the_value() {
    let schema = json!({
        "type": "object",
        "properties": { "days": { "type": "array", "items": { "$ref": "#/$defs/day" } }, "unit": { "enum": ["C", "F"] } },
        "required": ["days"],
        "additionalProperties": false,
        "$defs": { "day": { "type": "object", "properties": { "hour": { "type": "integer", "maximum": 23 } } } },
    });
    let violation = |value: Value| {
        let violation = check(&schema, &value).unwrap_err();
        (violation.path(), violation.reason)
    };
    let found = |path: &str, reason: &str| (path.to_owned(), reason.to_owned());
    assert_eq!(violation(json!({})), found("days", "is missing, but required"));
    assert_eq!(
        violation(json!({ "days": [{}, { "hour": 24 }] })),
        found("days[1].hour", "must be at most 23, but is 24")
    );
    assert_eq!(
        violation(json!({ "days": [], "unit": "K" })),
        found("unit", "must be one of `\"C\"`, `\"F\"`, but is `\"K\"`")
    );
    assert_eq!(violation(json!({ "days": [], "x": 1 })), found("x", "is not known: known are `days`, `unit`"));
    assert_eq!(violation(json!([])), found("", "must be of type object, but is `[]`"));
}

#[test]
fn nullable_allows_null_besides_the_schema() {
    let schema = json!({ "type": "string", "nullable": true, "enum": ["a"] });
    assert!(check(&schema, &json!(null)).is_ok() && check(&schema, &json!("b")).is_err());
}

#[test]
fn unusable_schemas_are_refused_with_the_keyword() {
    let refused = |schema: Value, named: &str| {
        let error = refuse_unusable(&schema).unwrap_err();
        assert!(error.contains(named), "{schema}: {error}");
    };
    refused(json!("object"), "at its root");
    refused(json!({ "type": "objekt" }), "`/type`");
    refused(json!({ "properties": { "a": { "required": true } } }), "`/properties/a/required`");
    refused(json!({ "properties": { "a": { "$ref": "#/$defs/b" } } }), "`#/$defs/b`");
    refused(json!({ "$ref": "https://example.com/schema" }), "part of the same schema");
    refused(json!({ "items": [{ "type": "string" }] }), "`/items`");
    refused(json!({ "pattern": "a(?=b)" }), "look-around");
    refused(json!({ "patternProperties": { "(": {} } }), "unclosed group");
    refused(json!({ "anyOf": [] }), "list of schemas");
    refused(json!({ "multipleOf": 0 }), "above zero");
    refused(json!({ "$defs": { "a": { "minLength": -1 } }, "$ref": "#/$defs/a" }), "minLength");
    let mut deep = json!({});
    for _ in 0..300 {
        deep = json!({ "items": deep });
    }
    refused(deep, "deep");
}

/// Includes a schema that refers to itself twice, so that the work doubles at each level.
#[test]
fn self_referring_schemas_end_with_an_error() {
    for schema in [json!({ "$ref": "#" }), json!({ "anyOf": [{ "$ref": "#" }, { "$ref": "#" }] })] {
        refuse_unusable(&schema).unwrap();
        assert!(check(&schema, &json!(1)).unwrap_err().reason.contains("too"));
    }
}
