//! Tests of the texts that the grammars of types accept, token by token.

use serde_json::{Value, json};

use crate::{
    gguf::Gguf,
    grammar::{Grammar, Grammars},
    sampler::LogitsProcessor,
    tokenizer::{SpecialTokens, Tokenizer},
};

struct GrammarChecker {
    tokenizer: Tokenizer,
    grammars: Grammars,
}

impl GrammarChecker {
    fn new() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/storyteller/storyteller.gguf");
        let tokenizer = Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap();
        Self { grammars: Grammars::new(&tokenizer).unwrap(), tokenizer }
    }

    fn of_type(&self, schema: &Value) -> Grammar {
        self.grammars.json_of_type("Tested", schema).unwrap()
    }

    fn accepts(&self, grammar: &Grammar, text: &str) -> bool {
        let mut ids = self.tokenizer.encode(text, SpecialTokens::Plain).unwrap();
        ids.push(self.tokenizer.end_of_generation()[0]);
        let mut constraint = grammar.constraint(self.tokenizer.vocab_size()).unwrap();
        (0..ids.len()).all(|count| {
            let mut logits = vec![0.0; self.tokenizer.vocab_size()];
            constraint.process(&ids[..count], &mut logits).unwrap();
            logits[ids[count] as usize] == 0.0
        })
    }

    fn check(&self, schema: Value, accepted: &[&str], refused: &[&str]) {
        let grammar = self.of_type(&schema);
        accepted.iter().for_each(|text| assert!(self.accepts(&grammar, text), "{text} by {schema}"));
        refused.iter().for_each(|text| assert!(!self.accepts(&grammar, text), "{text} by {schema}"));
    }
}

#[test]
fn number_grammars_accept_the_values_of_the_type() {
    let checker = GrammarChecker::new();
    let integer = |format: &str| json!({ "type": "integer", "format": format });
    checker.check(
        json!({ "type": "integer", "format": "uint64", "minimum": 0 }),
        &["0", "18446744073709551615"],
        &["-0", "-1", "18446744073709551616", "1.0", "1e3", "00", "+1", " 1", ""],
    );
    checker.check(integer("int64"), &["-9223372036854775808", "9223372036854775807"], &["-9223372036854775809", "-0"]);
    let [max, more] = ["340282366920938463463374607431768211455", "340282366920938463463374607431768211456"];
    checker.check(integer("uint128"), &[max, "7"], &[more, "-1"]);
    checker.check(json!({ "type": "integer", "format": "int8", "not": { "const": 0 } }), &["1", "-128"], &["0", "128"]);
    let double = json!({ "type": "number", "format": "double" });
    checker.check(
        double,
        &["0", "-0.5", "1e307", "-9.5E-300", "12345678901234567"],
        &["1e308", "1e999", "01", ".5", "1."],
    );
    checker.check(json!({ "type": "number", "format": "float" }), &["3.4", "9.9e37"], &["1e38", "1e39"]);
    let share = json!({ "type": "number", "minimum": 0, "exclusiveMaximum": 1 });
    checker.check(share, &["0", "0.0", "0.999"], &["1", "1.0", "-0.1", "1e-3", "0.123456789012345678"]);
}

#[test]
fn string_grammars_accept_lengths_formats_and_escapes() {
    let checker = GrammarChecker::new();
    checker.check(
        json!({ "type": "string" }),
        &["\"\"", r#""a\"b\\c\n\u0007ü 😀""#],
        &["\"\n\"", r#""\ud800""#, r#""\u0061""#, r#""\x""#, "\"a"],
    );
    checker.check(
        json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
        &["\"ü\"", r#""\"""#],
        &["\"\"", "\"ab\""],
    );
    let date = json!({ "type": "string", "format": "date" });
    checker.check(date, &["\"2024-02-29\"", "\"0001-12-31\""], &["\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\""]);
}

/// Tests all subsets of optional and required properties, in order and reversed.
#[test]
fn object_grammars_accept_required_and_optional_properties_in_order() {
    let checker = GrammarChecker::new();
    let names = ["a", "b", "c", "d"];
    for required in [vec![], vec!["a"], vec!["b", "d"], vec!["c"]] {
        let properties: serde_json::Map<_, _> =
            names.map(|name| (name.into(), json!({ "type": "null" }))).into_iter().collect();
        let schema =
            json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
        let grammar = checker.of_type(&schema);
        for subset in 0..16u32 {
            let present: Vec<_> = (0..4).filter(|bit| subset >> bit & 1 == 1).map(|bit| names[bit]).collect();
            let text = |names: &[&str]| {
                let fields: Vec<_> = names.iter().map(|name| format!("\"{name}\":null")).collect();
                format!("{{{}}}", fields.join(","))
            };
            let valid = required.iter().all(|name| present.contains(name));
            assert_eq!(checker.accepts(&grammar, &text(&present)), valid, "{present:?} of {required:?}");
            let reversed: Vec<_> = present.iter().rev().copied().collect();
            assert!(present.len() < 2 || !checker.accepts(&grammar, &text(&reversed)), "{reversed:?}");
        }
    }
    checker.check(
        json!({ "type": "object", "properties": { "id": true }, "additionalProperties": { "type": "boolean" } }),
        &["{}", r#"{"id":[1]}"#, r#"{"id":1,"x":true,"\n":false}"#, r#"{"i":true}"#],
        &[r#"{"id":1,"id":true}"#, r#"{"x":1}"#, r#"{"x":true,"id":1}"#, r#"{"\u0069d":true}"#],
    );
    checker.check(
        json!({ "type": "object", "patternProperties": { "^-?\\d+$": { "type": "null" } }, "additionalProperties": false }),
        &["{}", r#"{"-999999999":null,"0":null}"#],
        &[r#"{"-0":null}"#, r#"{"07":null}"#, r#"{"1234567890":null}"#, r#"{"a":null}"#],
    );
}

#[test]
fn array_grammars_accept_the_allowed_counts() {
    let checker = GrammarChecker::new();
    for (min, max) in [(0, None), (2, None), (0, Some(0)), (0, Some(3)), (1, Some(1)), (2, Some(4)), (3, Some(3))] {
        for prefix in 0..3 {
            let mut schema = json!({ "type": "array", "items": { "type": "null" }, "minItems": min });
            if let Some(max) = max {
                schema["maxItems"] = json!(max);
            }
            if prefix > 0 {
                schema["prefixItems"] = vec![json!({ "type": "boolean" }); prefix].into();
            }
            let grammar = checker.of_type(&schema);
            for count in 0..6 {
                let items: Vec<_> = (0..count).map(|i| if i < prefix { "true" } else { "null" }).collect();
                let valid = count >= min && max.is_none_or(|max| count <= max);
                assert_eq!(checker.accepts(&grammar, &format!("[{}]", items.join(","))), valid, "{count} by {schema}");
            }
        }
    }
}

#[test]
fn any_value_grammar_accepts_nested_json() {
    let checker = GrammarChecker::new();
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    checker.check(
        json!(true),
        &["null", r#"{"a":[true,-1.5e3,"x"],"b":{}}"#, &nested(64)],
        &[&nested(65), "[1,]", "{\"a\"}", "1e400", "nul"],
    );
}
