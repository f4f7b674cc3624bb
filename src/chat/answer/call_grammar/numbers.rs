//! Writes regular expressions of the numbers between two bounds, with a limited number of digits.

use serde_json::{Map, Value};

/// The largest integer that is allowed if the schema sets no bound.
const DEFAULT_BOUND: i128 = 1_000_000_000_000_000;

/// The largest integer that is allowed in any case.
const MAX_BOUND: i128 = 1_000_000_000_000_000_000;

/// The largest number of digits after the point of a number with bounds.
const MAX_FRACTION: u32 = 6;

/// The expression of numbers without bounds, with few enough digits for every parser.
const NUMBER: &str = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?";

/// The bounds of a schema.
#[derive(Clone, Copy, Default, PartialEq)]
struct NumberBounds<'s> {
    minimum: Option<&'s Value>,
    exclusive_minimum: Option<&'s Value>,
    maximum: Option<&'s Value>,
    exclusive_maximum: Option<&'s Value>,
}

/// Returns the expression of the integers, or of all numbers, that the schema allows; `None` if
/// there is none.
pub(super) fn expression(schema: &Map<String, Value>, integers: bool) -> Option<String> {
    let bound = |name: &str| schema.get(name).filter(|bound| bound.is_number());
    let bounds = NumberBounds {
        minimum: bound("minimum"),
        exclusive_minimum: bound("exclusiveMinimum"),
        maximum: bound("maximum"),
        exclusive_maximum: bound("exclusiveMaximum"),
    };
    if bounds == NumberBounds::default() && !integers {
        return Some(NUMBER.to_owned());
    }
    let scales = if integers { 0..=0 } else { 0..=MAX_FRACTION };
    let expressions: Vec<String> = scales.flat_map(|fraction| fixed_point(bounds, fraction)).collect();
    (!expressions.is_empty()).then(|| format!("(?:{})", expressions.join("|")))
}

/// Returns expressions of the numbers with `fraction` digits after the point.
fn fixed_point(bounds: NumberBounds<'_>, fraction: u32) -> Vec<String> {
    let scaled = |bound: Option<&Value>| Some(Decimal::of(bound?).scaled(fraction));
    let (minimum, above) = (scaled(bounds.minimum), scaled(bounds.exclusive_minimum));
    let (maximum, below) = (scaled(bounds.maximum), scaled(bounds.exclusive_maximum));
    let unit = 10_i128.pow(fraction);
    let low = [minimum.map(|s| s.ceiling), above.map(|s| s.floor.saturating_add(1))].into_iter().flatten().max();
    let high = [maximum.map(|s| s.floor), below.map(|s| s.ceiling.saturating_sub(1))].into_iter().flatten().min();
    let (low, high) = match (low, high) {
        (Some(low), Some(high)) => (low, high),
        (Some(low), None) => (low, low.max(0).saturating_add(DEFAULT_BOUND * unit)),
        (None, Some(high)) => (high.min(0).saturating_sub(DEFAULT_BOUND * unit), high),
        (None, None) => (-DEFAULT_BOUND * unit, DEFAULT_BOUND * unit),
    };
    let (low, high) = (low.max(-MAX_BOUND * unit), high.min(MAX_BOUND * unit));
    let mut expressions = vec![];
    if low < 0 {
        let negative = ranges((-high).max(1), -low);
        expressions.extend(negative.iter().map(|range| format!("-{}", written(range, fraction as usize))));
    }
    expressions.extend(ranges(low.max(0), high).iter().map(|range| written(range, fraction as usize)));
    expressions
}

/// A decimal number: `digits / 10^fraction`.
struct Decimal {
    digits: i128,
    fraction: u32,
}

/// A bound in units of the last digit, rounded down and up.
struct Scaled {
    floor: i128,
    ceiling: i128,
}

impl Decimal {
    /// Returns the number of its shortest text, saturated at the range of `i128`.
    fn of(number: &Value) -> Self {
        let text = match number.as_f64() {
            // `Display` of a float has no exponent, and is the shortest text that parses back.
            Some(float) if !number.is_i64() && !number.is_u64() => float.to_string(),
            _ => number.to_string(),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let nearest = if whole.starts_with('-') { i128::MIN } else { i128::MAX };
        let digits = format!("{whole}{fraction}").parse().unwrap_or(nearest);
        Self { digits, fraction: fraction.len() as u32 }
    }

    fn scaled(&self, fraction: u32) -> Scaled {
        if fraction >= self.fraction {
            let scaled = self.digits.saturating_mul(10_i128.saturating_pow(fraction - self.fraction));
            return Scaled { floor: scaled, ceiling: scaled };
        }
        let divisor = 10_i128.saturating_pow(self.fraction - fraction);
        let floor = self.digits.div_euclid(divisor);
        Scaled { floor, ceiling: floor + i128::from(self.digits.rem_euclid(divisor) != 0) }
    }
}

/// The first and the last digit at each place of a range of integers.
type DigitRange = Vec<(u8, u8)>;

/// Splits the integers from `low` to `high` into ranges in which each digit varies independently.
fn ranges(low: i128, high: i128) -> Vec<DigitRange> {
    let mut split = vec![];
    let mut low = low;
    while low <= high {
        // The longest range from `low` that differs in its last digits only: the first of these
        // starts at the digit of `low`, and the `free` ones after it run from 0 to 9.
        let mut free = 0;
        while low % 10_i128.pow(free + 1) == 0 && low + 10_i128.pow(free + 1) - 1 <= high && low > 0 {
            free += 1;
        }
        let unit = 10_i128.pow(free);
        let digit = low / unit % 10;
        let steps = ((high - low + 1) / unit).min(10 - digit);
        let mut range: DigitRange =
            (low / unit / 10).to_string().bytes().map(|byte| (byte - b'0', byte - b'0')).collect();
        if low / unit / 10 == 0 {
            range.clear();
        }
        range.push((digit as u8, (digit + steps - 1) as u8));
        range.extend((0..free).map(|_| (0, 9)));
        split.push(range);
        low += steps * unit;
    }
    split
}

/// Returns the expression of a range, with the point before the last `fraction` digits.
fn written(range: &DigitRange, fraction: usize) -> String {
    let zeros = (fraction + 1).saturating_sub(range.len());
    let digits: Vec<(u8, u8)> = vec![(0, 0); zeros].into_iter().chain(range.iter().copied()).collect();
    let mut text = String::new();
    for (at, (first, last)) in digits.iter().enumerate() {
        if fraction > 0 && at + fraction == digits.len() {
            text.push_str(r"\.");
        }
        text.push_str(&if first == last { first.to_string() } else { format!("[{first}-{last}]") });
    }
    text
}

#[cfg(test)]
mod tests {
    use regex_automata::meta::Regex;
    use serde_json::json;

    use super::*;
    use crate::chat::schema;

    fn regex(schema: &Value, integers: bool) -> Option<Regex> {
        let expression = expression(schema.as_object().unwrap(), integers)?;
        Some(Regex::new(&format!("^(?:{expression})$")).unwrap())
    }

    #[test]
    fn integer_expressions_match_the_integers_between_the_bounds() {
        for (low, high) in [(0, 0), (0, 9), (1, 31), (-5, 5), (-120, -7), (7, 1234), (99, 101), (1000, 2000), (10, 10)]
        {
            let schema = json!({ "minimum": low, "exclusiveMaximum": high + 1 });
            let regex = regex(&schema, true).unwrap();
            for number in -2500..2500 {
                assert_eq!(regex.is_match(&number.to_string()), (low..=high).contains(&number), "{number} in {schema}");
            }
            assert!(!regex.is_match("-0") && !regex.is_match("007"));
        }
        assert!(regex(&json!({ "minimum": 3, "maximum": 2 }), true).is_none());
        assert!(regex(&json!({ "minimum": 0.2, "maximum": 0.7 }), true).is_none());
        assert!(
            regex(&json!({ "minimum": 1e300 }), true).is_none() && regex(&json!({ "maximum": 1e300 }), true).is_some()
        );
    }

    #[test]
    fn number_expressions_match_the_numbers_between_the_bounds() {
        let bounds = [
            json!({ "minimum": 0, "maximum": 1 }),
            json!({ "exclusiveMinimum": 0, "exclusiveMaximum": 1 }),
            json!({ "minimum": -0.75, "maximum": 2.5 }),
            json!({ "minimum": 0.57 }),
            json!({ "maximum": -12.5 }),
            json!({ "minimum": 0.0000001, "maximum": 0.1 }),
        ];
        for schema in bounds {
            let regex = regex(&schema, false).unwrap();
            let mut matched = 0;
            for number in -4000..4000 {
                for text in [
                    format!("{number}"),
                    format!("{:.1}", number as f64 / 10.0),
                    format!("{:.3}", number as f64 / 1000.0),
                ] {
                    let value: Value = serde_json::from_str(&text).unwrap();
                    let negative_zero = text.starts_with('-') && value.as_f64() == Some(0.0);
                    let found = regex.is_match(&text);
                    let expected = schema::check(&schema, &value).is_ok() && !negative_zero;
                    assert_eq!(found, expected, "{text} in {schema}");
                    matched += usize::from(found);
                }
            }
            assert!(matched > 50, "{schema}: {matched}");
        }
    }
}
