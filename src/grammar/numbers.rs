//! Writes regular expressions that match exactly the JSON numbers of a range, with any number of
//! digits.
//!
//! llguidance converts the bounds of JSON Schema to `f64` and `i64`, which cannot hold `u64::MAX`
//! or the limits of 128-bit integers.

use std::cmp::Reverse;

/// An integer between `-u128::MAX` and `u128::MAX`. The order of the variants makes the derived
/// order numeric.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Integer {
    /// `-magnitude`, with a magnitude above 0.
    Negative(Reverse<u128>),
    /// A non-negative integer.
    Positive(u128),
}

impl From<i128> for Integer {
    fn from(value: i128) -> Self {
        match value {
            0.. => Self::Positive(value.unsigned_abs()),
            _ => Self::Negative(Reverse(value.unsigned_abs())),
        }
    }
}

impl From<u128> for Integer {
    fn from(value: u128) -> Self {
        Self::Positive(value)
    }
}

/// Returns an expression of the integers from `lower` to `upper`, both included, and without 0
/// unless `with_zero`; `None` if there are none. `-0` and leading zeros do not match.
pub fn integers(lower: Option<Integer>, upper: Option<Integer>, with_zero: bool) -> Option<String> {
    let min = if with_zero { 0 } else { 1 };
    let positive = match (lower, upper) {
        (_, Some(Integer::Negative(_))) => vec![],
        (Some(Integer::Positive(lower)), upper) => magnitudes(lower.max(min), magnitude(upper)),
        (_, upper) => magnitudes(min, magnitude(upper)),
    };
    let negative = match (lower, upper) {
        (Some(Integer::Positive(_)), _) => vec![],
        (lower, Some(Integer::Negative(Reverse(upper)))) => magnitudes(upper, magnitude(lower)),
        (lower, _) => magnitudes(1, magnitude(lower)),
    };
    let negative = negative.into_iter().map(|part| format!("-{part}"));
    alternatives(positive.into_iter().chain(negative).collect())
}

fn magnitude(bound: Option<Integer>) -> Option<u128> {
    bound.map(|bound| match bound {
        Integer::Negative(Reverse(magnitude)) | Integer::Positive(magnitude) => magnitude,
    })
}

fn magnitudes(lower: u128, upper: Option<u128>) -> Vec<String> {
    naturals(&lower.to_string(), upper.map(|upper| upper.to_string()).as_deref())
}

/// Returns expressions of the natural numbers from `lower` to `upper`, which have no leading zeros.
fn naturals(lower: &str, upper: Option<&str>) -> Vec<String> {
    let longest = upper.map_or(lower.len(), str::len);
    let mut parts = vec![];
    for length in lower.len()..=longest {
        let min = if length == 1 { "0".into() } else { format!("1{}", "0".repeat(length - 1)) };
        let max = "9".repeat(length);
        let from = if length == lower.len() { lower } else { &min };
        let to = upper.filter(|upper| upper.len() == length).unwrap_or(&max);
        if from <= to {
            parts.push(digits(from, to));
        }
    }
    if upper.is_none() {
        parts.push(format!("[1-9][0-9]{{{longest},}}"));
    }
    parts
}

/// Returns an expression of the digit strings from `lower` to `upper`, which have the same length.
fn digits(lower: &str, upper: &str) -> String {
    let is_all = |text: &str, digit: char| text.chars().all(|c| c == digit);
    let (Some(low), Some(high)) = (lower.chars().next(), upper.chars().next()) else { return String::new() };
    let (lower, upper) = (&lower[1..], &upper[1..]);
    if low == high {
        return format!("{low}{}", digits(lower, upper));
    }
    let (all_zeros, all_nines) = (is_all(lower, '0'), is_all(upper, '9'));
    let mut parts = vec![];
    let first = if all_zeros { low } else { next(low) };
    let last = if all_nines { high } else { previous(high) };
    if !all_zeros {
        parts.push(format!("{low}{}", digits(lower, &"9".repeat(lower.len()))));
    }
    if first <= last {
        parts.push(format!("[{first}-{last}]{}", any_digits(lower.len())));
    }
    if !all_nines {
        parts.push(format!("{high}{}", digits(&"0".repeat(upper.len()), upper)));
    }
    alternatives(parts).unwrap_or_default()
}

fn any_digits(count: usize) -> String {
    if count == 0 { String::new() } else { format!("[0-9]{{{count}}}") }
}

fn next(digit: char) -> char {
    char::from(digit as u8 + 1)
}

fn previous(digit: char) -> char {
    char::from(digit as u8 - 1)
}

fn alternatives(mut parts: Vec<String>) -> Option<String> {
    match parts.len() {
        0 | 1 => parts.pop(),
        _ => Some(format!("(?:{})", parts.join("|"))),
    }
}

/// A lower or upper limit of decimal numbers.
#[derive(Clone, Debug)]
pub struct Limit {
    negative: bool,
    /// The digits before the point, at least one, without leading zeros.
    whole: String,
    /// The digits after the point, without trailing zeros.
    fraction: String,
    exclusive: bool,
}

impl Limit {
    /// Parses a number in plain decimal notation, such as `-12.5`.
    pub fn new(decimal: &str, exclusive: bool) -> Self {
        let (negative, decimal) = decimal.strip_prefix('-').map_or((false, decimal), |rest| (true, rest));
        let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
        let fraction = fraction.trim_end_matches('0').to_owned();
        let negative = negative && (whole != "0" || !fraction.is_empty());
        Self { negative, whole: whole.into(), fraction, exclusive }
    }

    /// Returns the number of digits before the decimal point.
    pub fn whole_digits(&self) -> usize {
        self.whole.len()
    }

    /// Returns whether the limit itself is excluded.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    fn is_zero(&self) -> bool {
        self.whole == "0" && self.fraction.is_empty()
    }
}

/// Returns the expressions of the decimal numbers between two limits.
pub fn decimals(lower: Option<&Limit>, upper: Option<&Limit>) -> SignedRanges {
    let below = |limit: Option<&Limit>| limit.is_some_and(|limit| limit.negative || limit.is_zero() && limit.exclusive);
    let positive = (!below(upper)).then(|| {
        let lower = lower.filter(|limit| !limit.negative).map(at_least);
        lower.into_iter().chain(upper.map(at_most)).collect()
    });
    let has_negative = lower.is_none_or(|limit| limit.negative);
    let negative = has_negative.then(|| {
        let nearest = match upper {
            Some(limit) if limit.negative || limit.is_zero() => Some(at_least(limit)),
            _ => None,
        };
        nearest.into_iter().chain(lower.map(at_most)).collect()
    });
    SignedRanges { positive, negative }
}

/// The numbers of a range, by sign. A number lies in the range if its digits match all expressions
/// of its sign; `None` if the range has no number with that sign.
pub struct SignedRanges {
    /// Expressions of the numbers without a sign.
    pub positive: Option<Vec<String>>,
    /// Expressions of the digits after a minus sign.
    pub negative: Option<Vec<String>>,
}

const ANY_FRACTION: &str = r"(?:\.[0-9]+)?";

/// Returns an expression of the unsigned decimal numbers that are not below the limit's magnitude.
fn at_least(limit: &Limit) -> String {
    let mut parts = vec![];
    let mut prefix = String::new();
    for digit in limit.fraction.chars() {
        if digit < '9' {
            parts.push(format!(r"\.{prefix}[{}-9][0-9]*", next(digit)));
        }
        prefix.push(digit);
    }
    let tail = if limit.exclusive { "[0-9]*[1-9][0-9]*" } else { "[0-9]*" };
    parts.push(match (prefix.is_empty(), limit.exclusive) {
        (true, true) => format!(r"\.{tail}"),
        (true, false) => ANY_FRACTION.into(),
        (false, _) => format!(r"\.{prefix}{tail}"),
    });
    let same = format!("{}{}", limit.whole, alternatives(parts).unwrap_or_default());
    let above = naturals(&successor(&limit.whole), None).into_iter().map(|whole| whole + ANY_FRACTION);
    alternatives(std::iter::once(same).chain(above).collect()).unwrap_or_default()
}

/// Returns an expression of the unsigned decimal numbers that are not above the limit's magnitude.
/// The limit is not an exclusive 0.
fn at_most(limit: &Limit) -> String {
    let mut parts = vec![];
    let mut prefix = String::new();
    let count = limit.fraction.len();
    for (i, digit) in limit.fraction.chars().enumerate() {
        if digit > '0' {
            parts.push(format!(r"\.{prefix}[0-{}][0-9]*", previous(digit)));
        }
        prefix.push(digit);
        // A proper prefix is smaller, because the last digit is not 0.
        if i + 1 < count {
            parts.push(format!(r"\.{prefix}"));
        }
    }
    if count > 0 {
        parts.push(String::new());
    }
    if !limit.exclusive {
        parts.push(if count == 0 { r"(?:\.0+)?".into() } else { format!(r"\.{prefix}0*") });
    }
    let same = alternatives(parts).map(|fraction| format!("{}{fraction}", limit.whole));
    let below = predecessor(&limit.whole).map(|max| naturals("0", Some(&max))).unwrap_or_default();
    let below = below.into_iter().map(|whole| whole + ANY_FRACTION);
    alternatives(same.into_iter().chain(below).collect()).unwrap_or_default()
}

fn successor(number: &str) -> String {
    let nines = number.len() - number.trim_end_matches('9').len();
    let (head, zeros) = (&number[..number.len() - nines], "0".repeat(nines));
    match head.char_indices().next_back() {
        None => format!("1{zeros}"),
        Some((at, digit)) => format!("{}{}{zeros}", &head[..at], next(digit)),
    }
}

/// Returns the natural number below a number; `None` for 0.
fn predecessor(number: &str) -> Option<String> {
    let head = number.trim_end_matches('0');
    let nines = "9".repeat(number.len() - head.len());
    let (at, digit) = head.char_indices().next_back()?;
    let text = format!("{}{}{nines}", &head[..at], previous(digit));
    let trimmed = text.trim_start_matches('0');
    Some(if trimmed.is_empty() { "0".into() } else { trimmed.into() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex_automata::meta::Regex;

    use super::*;

    fn whole(expression: &str) -> Regex {
        Regex::new(&format!("^(?:{expression})$")).unwrap()
    }

    fn integer(value: i64) -> Integer {
        i128::from(value).into()
    }

    #[test]
    fn limits_of_integer_types_are_exact() {
        let ranges: [(Integer, Integer, [&str; 3], [&str; 4]); 4] = [
            (
                0u128.into(),
                u128::from(u64::MAX).into(),
                ["0", "18446744073709551615", "9"],
                ["18446744073709551616", "-1", "-0", "01"],
            ),
            (
                i128::from(i64::MIN).into(),
                i128::from(i64::MAX).into(),
                ["-9223372036854775808", "9223372036854775807", "0"],
                ["-9223372036854775809", "9223372036854775808", "-0", "00"],
            ),
            (
                0u128.into(),
                u128::MAX.into(),
                ["340282366920938463463374607431768211455", "9007199254740993", "10"],
                ["340282366920938463463374607431768211456", "-1", "1000000000000000000000000000000000000000", ""],
            ),
            (
                i128::MIN.into(),
                i128::MAX.into(),
                [
                    "-170141183460469231731687303715884105728",
                    "170141183460469231731687303715884105727",
                    "-9007199254740993",
                ],
                ["-170141183460469231731687303715884105729", "170141183460469231731687303715884105728", "-", "--1"],
            ),
        ];
        for (lower, upper, inside, outside) in ranges {
            let regex = whole(&integers(Some(lower), Some(upper), true).unwrap());
            inside.iter().for_each(|text| assert!(regex.is_match(text), "{text}"));
            outside.iter().for_each(|text| assert!(!regex.is_match(text), "{text}"));
        }
    }

    /// Returns the decimal text of `value / 1000`.
    fn thousandths(value: i64) -> String {
        let sign = if value < 0 { "-" } else { "" };
        format!("{sign}{}.{:03}", value.abs() / 1000, value.abs() % 1000)
    }

    proptest! {
        #[test]
        fn integers_match_within_their_limits(
            lower in -1200i64..1200, length in 0i64..2000, below: bool, above: bool, zero: bool,
        ) {
            let upper = lower + length;
            let (low, high) = (below.then(|| integer(lower)), above.then(|| integer(upper)));
            let holds = |value: &i64| (zero || *value != 0) && (!below || *value >= lower) && (!above || *value <= upper);
            let candidates = (-2500..2500).chain([-123_456, 99_999, 100_000]);
            match integers(low, high, zero) {
                Some(expression) => {
                    let regex = whole(&expression);
                    for value in candidates {
                        prop_assert_eq!(regex.is_match(&value.to_string()), holds(&value), "{} {}", value, expression);
                    }
                }
                None => prop_assert_eq!(candidates.filter(holds).count(), 0),
            }
        }

        #[test]
        fn decimals_match_within_their_limits(
            lower in -3000i64..3000,
            length in 0i64..4000,
            exclusive: (bool, bool),
            values in prop::collection::vec(-6000i64..6000, 200),
        ) {
            let upper = lower + length;
            let limits = [(lower, exclusive.0), (upper, exclusive.1)];
            let [low, high] = limits.map(|(value, exclusive)| Limit::new(&thousandths(value), exclusive));
            for (low, high) in [(Some(&low), Some(&high)), (Some(&low), None), (None, Some(&high))] {
                let SignedRanges { positive, negative } = decimals(low, high);
                let regexes = |side: Option<Vec<String>>| side.map(|all| all.iter().map(|text| whole(text)).collect::<Vec<_>>());
                let sides = [regexes(positive), regexes(negative)];
                for value in values.iter().copied().chain([lower - 1, lower, lower + 1, upper - 1, upper, upper + 1]) {
                    let text = thousandths(value);
                    let (side, magnitude) = match text.strip_prefix('-') {
                        Some(magnitude) => (&sides[1], magnitude),
                        None => (&sides[0], text.as_str()),
                    };
                    let above = low.is_none() || value > lower || value == lower && !exclusive.0;
                    let below = high.is_none() || value < upper || value == upper && !exclusive.1;
                    for text in [magnitude, magnitude.trim_end_matches('0').trim_end_matches('.')] {
                        let matches = side.as_ref().is_some_and(|all| all.iter().all(|regex| regex.is_match(text)));
                        prop_assert_eq!(matches, above && below, "{} in {}..{} {:?}", text, lower, upper, exclusive);
                    }
                }
            }
        }
    }
}
