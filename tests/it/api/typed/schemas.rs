//! Tests of limits and white space of generated JSON, and of string formats.

use super::*;

#[test]
fn schema_integers_beyond_2_53_are_exact() {
    let runner = storyteller();
    let grammars = runner.grammars().unwrap();
    let id = json!({ "type": "integer", "minimum": 9007199254740993u64, "maximum": u64::MAX });
    let person = json!({
        "type": "object",
        "properties": { "id": { "$ref": "#/$defs/id" }, "name": { "enum": ["Ann", "Bo"] }, "tags": { "$ref": "#/$defs/tags" } },
        "required": ["id"],
        "additionalProperties": false,
        "$defs": { "id": id, "tags": { "type": "array", "items": { "type": "boolean" }, "uniqueItems": false } },
    });
    let mut plain = person.clone();
    plain["$defs"]["tags"].as_object_mut().unwrap().remove("uniqueItems");
    let grammar = grammars.json_schema(&plain).unwrap();
    for text in [
        r#"{"id":9007199254740993}"#,
        "{\n  \"id\": 18446744073709551615, \"name\": \"Bo\",\n  \"tags\": [true, false]\n}",
    ] {
        assert!(accepts(&runner, &grammar, text), "{text}");
    }
    for text in [
        r#"{"id":9007199254740992}"#,
        r#"{"id":18446744073709551616}"#,
        r#"{"id": 9007199254740993,  "name": "Bo"}"#,
        r#"{"name":"Bo"}"#,
        r#"{"id":9007199254740993,"name":"Cy"}"#,
    ] {
        assert!(!accepts(&runner, &grammar, text), "{text}");
    }
    assert!(matches!(grammars.json_schema(&person), Err(Error::Grammar(what)) if what.contains("uniqueItems")));
    let least = grammars.json_schema(&json!({ "type": "integer", "minimum": i64::MIN, "maximum": -1 })).unwrap();
    assert!(accepts(&runner, &least, "-9223372036854775808") && !accepts(&runner, &least, "-9223372036854775809"));
    let listed = grammars.json_schema(&json!({ "enum": [u64::MAX, "a", 1] })).unwrap();
    assert!(accepts(&runner, &listed, "18446744073709551615") && accepts(&runner, &listed, "1"));
    assert!(!accepts(&runner, &listed, "18446744073709552000"));
    let lark = format!("start: \"id \" %json {id}");
    let lark = grammars.lark(&lark).unwrap();
    assert!(accepts(&runner, &lark, "id 9007199254740993") && !accepts(&runner, &lark, "id 9007199254740992"));
}

#[test]
fn white_space_is_bounded_in_all_json() {
    let runner = storyteller();
    let grammars = runner.grammars().unwrap();
    let schema =
        json!({ "type": "object", "properties": { "a": { "const": 1 }, "b": { "type": "array", "items": {} } } });
    let blocks = [
        format!("start: %json {schema}"),
        format!("start: %lark {{\n  start: %json {schema}\n}}"),
        format!("start: a | \"x\"\na: (%json {schema} \"!\"?)+"),
    ];
    let mut all = vec![grammars.json_schema(&schema).unwrap()];
    all.extend(blocks.iter().map(|lark| grammars.lark(lark).unwrap()));
    for grammar in &all {
        assert!(accepts(&runner, grammar, r#"{"a":1,"b":[1,{}]}"#), "{grammar:?}");
        assert!(accepts(&runner, grammar, "{\n    \"a\": 1,\n    \"b\": [1, {}]\n}"), "{grammar:?}");
        for long in ["{\n\n\"a\":1}", "{\"a\":1,  \"b\":[]}", "{\"a\":1,\"b\":[1,\n\n2]}", "{\"a\":\t1}"] {
            assert!(!accepts(&runner, grammar, long), "{long:?} by {grammar:?}");
        }
    }
    let compact = grammars.json_schema_with(&schema, JsonStyle::Compact).unwrap();
    assert!(accepts(&runner, &compact, r#"{"a":1,"b":[1,{"c":[]}]}"#));
    for spaced in ["{ \"a\":1}", "{\"a\": 1}", "{\"a\":1,\"b\":[1, 2]}", "{\"a\":1\n}"] {
        assert!(!accepts(&runner, &compact, spaced), "{spaced:?}");
    }
    assert_ne!(compact, all[0]);
}

macro_rules! dated {
    ($name:ident, $type:ty, $format:literal) => {
        #[derive(Debug)]
        struct $name;

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse::<$type>().map(|_| Self).map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                json_schema!({ "type": "string", "format": $format })
            }
        }
    };
}

dated!(Date, jiff::civil::Date, "date");
dated!(Time, jiff::civil::Time, "partial-time");
dated!(DateTime, jiff::civil::DateTime, "partial-date-time");
dated!(Timestamp, jiff::Timestamp, "date-time");
dated!(Span, jiff::SignedDuration, "duration");
dated!(Zoned, jiff::Zoned, "zoned-date-time");

/// Reads the values with the jiff crate, for whose types schemars writes these formats.
#[test]
fn generated_formats_are_read_by_their_types() {
    let runner = &mut storyteller();
    hold!(all_hold, runner, Date, Time, DateTime, Timestamp, Span);
    errors::refused::<Zoned>(runner, &["`Zoned`", "`format`", "zoned-date-time"]);
    // Dates and times on which llguidance's expressions and other crates differ.
    let runner = storyteller();
    let accepts =
        |schema: Value, text: &str| accepts(&runner, &runner.grammars().unwrap().json_schema(&schema).unwrap(), text);
    assert!(accepts(json!({ "type": "string", "format": "uuid" }), "\"67e55044-10b1-426f-9247-bb680e5fe0c8\""));
}
