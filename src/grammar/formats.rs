//! Writes regular expressions for the values of `format` that schemars uses.
//!
//! llguidance's own expressions allow 29 February in each year, leap seconds, and fractions of a
//! second of any length, which Rust types reject, and they lack local times.

/// Returns the expression of a format; `None` for a format that is left to llguidance.
pub fn expression(format: &str) -> Option<String> {
    Some(match format {
        "date" => DATE.into(),
        "partial-time" => TIME.into(),
        "time" => format!("{TIME}{ZONE}"),
        "partial-date-time" => format!("({DATE})T{TIME}"),
        "date-time" => format!("({DATE})T{TIME}{ZONE}"),
        "duration" => DURATION.into(),
        "ip" => format!("{IPV4}|({H16}:){{7}}{H16}"),
        _ => return None,
    })
}

/// A date in the years 1 to 9999 of the Gregorian calendar.
const DATE: &str = concat!(
    "(",
    year!(),
    r")-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))",
    r"|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29"
);

macro_rules! year {
    () => {
        "000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3}"
    };
}
use year;

const TIME: &str = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?";

const ZONE: &str = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";

/// Hours, minutes and seconds. Days and longer units have no fixed length, and not all types accept
/// them.
const DURATION: &str = r"PT([0-9]{1,4}H([0-9]{1,4}M)?([0-9]{1,4}S)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S)";

const IPV4: &str = r"((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

const H16: &str = "[0-9a-f]{1,4}";
