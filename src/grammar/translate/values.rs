//! Translates numbers, strings and values of any type.

use std::cmp::Reverse;

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar, ValidationResult};
use serde_json::Value;

use super::{
    SchemaOrigin, SchemaPlace, Translation,
    containers::{CountLimits, count_limits},
    wide::EXACT,
};
use crate::{
    error::Result,
    grammar::{
        JsonObject, formats,
        numbers::{self, Integer, Limit, SignedRanges},
    },
};

/// The largest number of digits before and after the decimal point of a float; an `f64` holds 17.
const FLOAT_DIGITS: usize = 17;

/// The deepest nesting of a value of any type. serde_json reads 128 levels.
const ANY_DEPTH: usize = 64;

/// The expression of a character of a JSON string. Only control characters have `\u` escapes:
/// serde_json rejects unpaired surrogates, and a key with two spellings could be a duplicate.
const CHARACTER: &str = r#"[^"\\\x00-\x1F\x7F]|\\["\\bfnrt]|\\u00(0[0-7bBeEfF]|1[0-9A-Fa-f]|7[fF])"#;

impl Translation<'_> {
    /// Translates an integer. For Rust types, `format` sets additional limits.
    pub(super) fn integer(&mut self, schema: &JsonObject, place: &SchemaPlace) -> Result<String> {
        let (mut lower, mut upper) = (None, None);
        if let SchemaOrigin::Type(_) = self.origin {
            let (min, max) = type_limits(schema);
            (lower, upper) = (Some(min), Some(max));
        }
        for (key, step) in [("minimum", 0), ("exclusiveMinimum", 1)] {
            let min = schema.get(key).map(|value| integer_limit(value, step, place, key)).transpose()?;
            lower = lower.max(min);
        }
        for (key, step) in [("maximum", 0), ("exclusiveMaximum", -1)] {
            let max = schema.get(key).map(|value| integer_limit(value, step, place, key)).transpose()?;
            upper = [upper, max].into_iter().flatten().min();
        }
        let zero = match schema.get("not") {
            None => true,
            Some(not) if *not == serde_json::json!({ "const": 0 }) => false,
            Some(_) => return Err(place.keyword("not", "is only supported as `{\"const\": 0}` of an integer")),
        };
        if let Some(step) = schema.get("multipleOf") {
            return self.multiples(step, lower, upper, zero, place);
        }
        let text = numbers::integers(lower, upper, zero);
        let text = text.ok_or_else(|| place.keyword("minimum", "is larger than `maximum`"))?;
        Ok(self.rules.terminal(format!("/{text}/")))
    }

    /// Translates `multipleOf` by llguidance, once below 0 and once above: its range of both signs
    /// would accept `-0`. llguidance computes with `f64`, so the limits must be exact there.
    fn multiples(
        &mut self,
        step: &Value,
        lower: Option<Integer>,
        upper: Option<Integer>,
        zero: bool,
        place: &SchemaPlace,
    ) -> Result<String> {
        let small = |limit: Option<Integer>| {
            let value = match limit? {
                Integer::Positive(value) => i64::try_from(value).ok()?,
                Integer::Negative(Reverse(value)) => -i64::try_from(value).ok()?,
            };
            (value.abs() <= EXACT as i64).then_some(value)
        };
        let (Some(lower), Some(upper)) = (small(lower), small(upper)) else {
            let what = "needs a `minimum` and a `maximum` between -2^53 and 2^53 beside it";
            return Err(place.keyword("multipleOf", what));
        };
        let sides = [(lower, upper.min(-1)), (lower.max(if zero { 0 } else { 1 }), upper)];
        let multiples = |(lower, upper): (i64, i64)| {
            let keys = [("minimum", lower.into()), ("maximum", upper.into()), ("multipleOf", step.clone())];
            let keys = keys.map(|(key, value)| (key.to_owned(), value));
            JsonObject::from_iter([("type".into(), "integer".into())].into_iter().chain(keys))
        };
        let sides = sides.into_iter().filter(|(lower, upper)| lower <= upper).map(multiples);
        // A side without a multiple is left out.
        let sides = sides.filter_map(|side| self.checked_leaf(side).ok()).collect();
        self.one_of(sides, place)
    }

    /// Returns a `%json` block after llguidance has accepted its schema. An error of the whole
    /// grammar would not name the field.
    fn checked_leaf(&mut self, schema: JsonObject) -> Result<String, String> {
        check(&Value::Object(schema.clone()))?;
        Ok(self.leaf(&schema))
    }

    /// Translates a number. For Rust types, it has a limited number of digits and is finite.
    pub(super) fn number(&mut self, schema: &JsonObject, place: &SchemaPlace) -> Result<String> {
        if schema.contains_key("multipleOf") {
            return Err(place.keyword("multipleOf", "is only supported for integers"));
        }
        let is_f32 = schema.get("format").is_some_and(|format| format == "float");
        let lower = number_limit(schema, "minimum", "exclusiveMinimum", is_f32, f64::max, place)?;
        let upper = number_limit(schema, "maximum", "exclusiveMaximum", is_f32, f64::min, place)?;
        if let (Some((min, low)), Some((max, high))) = (&lower, &upper)
            && (min > max || min == max && (low.is_exclusive() || high.is_exclusive()))
        {
            return Err(place.error("no number lies between the minimum and the maximum"));
        }
        let [lower, upper] = [lower, upper].map(|limit| limit.map(|(_, limit)| limit));
        let is_type = matches!(self.origin, SchemaOrigin::Type(_));
        if lower.is_none() && upper.is_none() && is_type {
            let exponent = if is_f32 { "[12]?[0-9]|3[0-7]" } else { "[12]?[0-9]?[0-9]|30[0-7]" };
            let plain = plain_digits(FLOAT_DIGITS);
            let scientific = format!(r"[0-9](\.[0-9]{{1,{FLOAT_DIGITS}}})?[eE][+-]?({exponent})");
            return Ok(self.rules.terminal(format!("/-?({plain}|{scientific})/")));
        }
        let whole = [&lower, &upper].into_iter().flatten().map(Limit::whole_digits).max().unwrap_or(0);
        let digits = if is_type { plain_digits(whole.max(FLOAT_DIGITS)) } else { r"(0|[1-9][0-9]*)(\.[0-9]+)?".into() };
        let side = |sign: &str, ranges: Vec<String>| {
            let ranges: String = ranges.iter().map(|range| format!(" & /{range}/")).collect();
            format!("{sign}(/{digits}/{ranges})")
        };
        let SignedRanges { positive, negative } = numbers::decimals(lower.as_ref(), upper.as_ref());
        let positive = positive.map(|ranges| side("", ranges));
        let negative = negative.map(|ranges| side("\"-\" ", ranges));
        let sides: Vec<_> = positive.into_iter().chain(negative).collect();
        Ok(self.rules.terminal(sides.join(" | ")))
    }

    /// Translates a string. Patterns and some formats are passed to llguidance.
    pub(super) fn string(&mut self, schema: &JsonObject, place: &SchemaPlace) -> Result<String> {
        let CountLimits { min, max } = count_limits(schema, "minLength", "maxLength", place)?;
        let mut block = JsonObject::new();
        for key in ["pattern", "format", "minLength", "maxLength"] {
            if let Some(value) = schema.get(key) {
                block.insert(key.into(), value.clone());
            }
        }
        let format = schema.get("format").and_then(Value::as_str).and_then(formats::expression);
        match (schema.get("pattern"), schema.get("format"), format) {
            (None, None, _) => {
                let count: String = match (min.unwrap_or(0), max) {
                    (0, None) => "*".into(),
                    (min, Some(max)) => format!("{{{min},{max}}}"),
                    (min, None) => format!("{{{min},}}"),
                };
                Ok(self.rules.terminal(format!("/{}/", text(&count))))
            }
            (None, _, Some(expression)) if min.is_none() && max.is_none() => {
                Ok(self.rules.terminal(format!("/\"({expression})\"/")))
            }
            _ => {
                block.insert("type".into(), "string".into());
                let keys = block.keys().filter(|key| *key != "type").map(|key| format!("`{key}`")).collect::<Vec<_>>();
                let rejected = |reason| place.error(format!("the keyword {}: {reason}", keys.join(" with ")));
                self.checked_leaf(block).map_err(rejected)
            }
        }
    }

    /// Returns an expression of the keys that match a pattern.
    pub(super) fn matching(&mut self, pattern: &str, place: &SchemaPlace) -> Result<String> {
        let mut block = JsonObject::new();
        block.insert("type".into(), "string".into());
        block.insert("pattern".into(), pattern.into());
        self.checked_leaf(block).map_err(|what| place.error(format!("the keyword `patternProperties`: {what}")))
    }

    /// Returns an expression of values of any type.
    pub(super) fn any(&mut self, place: &SchemaPlace) -> Result<String> {
        if let SchemaOrigin::Caller = self.origin {
            return Ok(self.leaf(&JsonObject::new()));
        }
        let string = self.rules.terminal(format!("/{}/", text("*")));
        let number = self.number(&JsonObject::new(), place)?;
        let mut any = self.rules.rule(format!(r#"{string} | {number} | "true" | "false" | "null""#));
        let scalar = any.clone();
        for _ in 0..ANY_DEPTH {
            let entry = format!("{string} \":\" {any}");
            any = self
                .rules
                .rule(format!(r#"{scalar} | "[" ({any} ("," {any})*)? "]" | "{{" ({entry} ("," {entry})*)? "}}""#));
        }
        Ok(any)
    }
}

/// Returns the limits of the integer type of a `format` of schemars; of `i64` for other formats.
fn type_limits(schema: &JsonObject) -> (Integer, Integer) {
    let signed = |bits: u32| (Integer::from(i128::MIN >> (128 - bits)), Integer::from(i128::MAX >> (128 - bits)));
    let unsigned = |bits: u32| (Integer::from(0u128), Integer::from(u128::MAX >> (128 - bits)));
    match schema.get("format").and_then(Value::as_str) {
        Some("int8") => signed(8),
        Some("int16") => signed(16),
        Some("int32") => signed(32),
        Some("int128") => signed(128),
        Some("int") => signed(isize::BITS),
        Some("uint8") => unsigned(8),
        Some("uint16") => unsigned(16),
        Some("uint32") => unsigned(32),
        Some("uint64") => unsigned(64),
        Some("uint128") => unsigned(128),
        Some("uint") => unsigned(usize::BITS),
        _ => signed(64),
    }
}

/// Returns the smallest or largest integer that a limit allows. `step` is 0 for inclusive limits, 1
/// for exclusive lower and -1 for exclusive upper ones.
fn integer_limit(value: &Value, step: i128, place: &SchemaPlace, key: &str) -> Result<Integer> {
    let exact = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let rounded = |number: f64| match step {
        0 if key == "minimum" => number.ceil() as i128,
        0 => number.floor() as i128,
        1 => number.floor() as i128 + 1,
        _ => number.ceil() as i128 - 1,
    };
    let float = value.as_f64().filter(|number| number.abs() < 1e38).map(rounded);
    let limit = exact.map(|exact| exact + step).or(float);
    limit
        .map(Integer::from)
        .ok_or_else(|| place.keyword(key, &format!("is `{value}`, which is not a limit of integers")))
}

/// Returns the tighter one of an inclusive and an exclusive limit, as `f64` and in full precision.
fn number_limit(
    schema: &JsonObject,
    inclusive_key: &str,
    exclusive_key: &str,
    is_f32: bool,
    tighter: fn(f64, f64) -> f64,
    place: &SchemaPlace,
) -> Result<Option<(f64, Limit)>> {
    let range = if is_f32 { f64::from(f32::MAX) } else { f64::MAX };
    let mut limits = vec![];
    for (key, exclusive) in [(inclusive_key, false), (exclusive_key, true)] {
        let Some(value) = schema.get(key) else { continue };
        let number = value.as_f64().ok_or_else(|| place.keyword(key, "is not a number"))?;
        // `Display` of a float has no exponent. Integers beyond 2^53 keep all digits.
        let is_rounded = value.is_f64() || number.abs() > range;
        let text = if is_rounded { number.clamp(-range, range).to_string() } else { value.to_string() };
        limits.push((number, Limit::new(&text, exclusive)));
    }
    // The exclusive limit comes last, and wins against an equal one.
    let tighter =
        |left: (f64, Limit), right: (f64, Limit)| if tighter(left.0, right.0) == right.0 { right } else { left };
    Ok(limits.into_iter().reduce(tighter))
}

/// Returns an expression of JSON strings; `quantifier` applies to their characters.
pub(super) fn text(quantifier: &str) -> String {
    format!("\"({CHARACTER}){quantifier}\"")
}

fn plain_digits(whole: usize) -> String {
    format!(r"(0|[1-9][0-9]{{0,{}}})(\.[0-9]{{1,{FLOAT_DIGITS}}})?", whole - 1)
}

/// Returns llguidance's error for a schema, if it rejects it.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let grammar = TopLevelGrammar::from_json_schema(schema.clone());
    match GrammarInit::Serialized(grammar).validate(None, ParserLimits::default()) {
        ValidationResult::Error(what) => Err(what),
        ValidationResult::Valid | ValidationResult::Warnings(_) => Ok(()),
    }
}
