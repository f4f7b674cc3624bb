//! Comparisons of JSON numbers: exact between integers, else in double precision.

use std::cmp::Ordering;

use serde_json::{Number, Value};

pub(super) fn compare(one: &Number, other: &Number) -> Ordering {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => float(one).total_cmp(&float(other)),
    }
}

pub(super) fn is_integer(value: &Value) -> bool {
    value.as_number().is_some_and(|number| integer(number).is_some() || float(number).fract() == 0.0)
}

/// Whether `number` is a multiple of `unit`, up to the error of a division of decimal fractions.
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
    // Adding zero makes a negative zero, which would compare as smaller, positive.
    number.as_f64().unwrap_or(f64::NAN) + 0.0
}
