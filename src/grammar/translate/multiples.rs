//! Refuses the `multipleOf` numbers that llguidance would compute wrongly.

use serde_json::Value;

use crate::error::{Error, Result};

/// Checks each `multipleOf` of a schema.
///
/// llguidance finds the remainder of a number digit by digit in 32 bits. If a remainder overflows,
/// a release build accepts other numbers than the multiples, and a debug build panics.
///
/// # Errors
/// [`Error::Grammar`] with the number.
pub fn check_multiples(schema: &Value) -> Result<()> {
    match schema {
        Value::Object(object) => object.iter().try_for_each(|(key, value)| {
            if key == "multipleOf" && value.as_f64().is_some_and(overflows) {
                let what = format!(
                    "`multipleOf` {value} has too many digits, or more in binary than in decimal as 0.07 has: use at \
                     most 8 digits, or a number such as 0.01 or 0.5"
                );
                return Err(Error::Grammar(what));
            }
            check_multiples(value)
        }),
        Value::Array(values) => values.iter().try_for_each(check_multiples),
        _ => Ok(()),
    }
}

/// Returns whether a remainder overflows: it is computed from a smaller remainder times ten and a
/// digit, in units of the number's last decimal place.
fn overflows(number: f64) -> bool {
    let (mut coefficient, mut unit) = (number.abs(), 1.0);
    while coefficient.fract() != 0.0 {
        coefficient *= 10.0;
        unit *= 10.0;
    }
    10.0 * coefficient + 9.0 * unit > f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_whose_remainders_overflow_are_refused() {
        let schema = |number: Value| json!({ "properties": { "a": { "anyOf": [{ "multipleOf": number }] } } });
        // 10 * 429496728 + 9 = 2^32 - 7.
        for number in [json!(429_496_728), json!(-0.01), json!(99.125), json!(0.00000001), json!("text")] {
            assert!(check_multiples(&schema(number.clone())).is_ok(), "{number}");
        }
        for number in [json!(429_496_729), json!(-4.123456789), json!(1e-9), json!(1e300), json!(1e-320)] {
            let error = check_multiples(&schema(number.clone())).unwrap_err().to_string();
            assert!(error.contains(&format!("`multipleOf` {number} has too many digits")), "{error}");
        }
    }
}
