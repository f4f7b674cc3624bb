//! Compares JSON numbers: integers exactly, other numbers as f64.

use std::cmp::Ordering;

use serde_json::{Number, Value};

pub(super) fn compare(left: &Number, right: &Number) -> Ordering {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => float(left).total_cmp(&float(right)),
    }
}

pub(super) fn is_integer(value: &Value) -> bool {
    value.as_number().is_some_and(|number| integer(number).is_some() || float(number).fract() == 0.0)
}

/// Returns whether `number` is a multiple of `unit`, up to the rounding error of the division.
pub(super) fn is_multiple(number: &Number, unit: &Number) -> bool {
    if let (Some(number), Some(unit @ 1..)) = (integer(number), integer(unit)) {
        return number % unit == 0;
    }
    let quotient = float(number) / float(unit);
    (quotient - quotient.round()).abs() <= 1e-9 * quotient.abs().max(1.0)
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    // The addition makes a negative zero positive, which would otherwise compare as smaller.
    number.as_f64().unwrap_or(f64::NAN) + 0.0
}
