//! Reads and writes profiles as TOML.

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{Profile, check_chunk, check_passes, check_row_counts, check_threads, check_tile_rows, check_unsplit};

/// Parses a profile. An error is the line and the problem.
pub(super) fn parse(text: &str) -> Result<Profile, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let message = error.message().trim_end();
        match error.span().and_then(|span| text.get(..span.start)) {
            Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
            None => message.into(),
        }
    })
}

/// Returns the text of a profile, or the problem.
pub(super) fn write(profile: &Profile) -> Result<String, String> {
    toml::to_string(profile).map_err(|error| error.to_string())
}

/// Deserializes a value and checks it, so that the error has the value's line.
fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<T, D::Error> {
    let value = T::deserialize(from)?;
    check(&value).map_err(|what| D::Error::custom(format!("the value {what}")))?;
    Ok(value)
}

pub(super) fn threads<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    checked(from, |value| check_threads(*value)).map(Some)
}

pub(super) fn chunk<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    checked(from, |value| check_chunk(*value)).map(Some)
}

pub(super) fn unsplit_positions<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    checked(from, |value| check_unsplit(*value)).map(Some)
}

pub(super) fn passes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    checked(from, |value: &Vec<_>| check_passes(value))
}

pub(super) fn row_counts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<usize>, D::Error> {
    checked(from, |value: &Vec<_>| check_row_counts(value))
}

pub(super) fn tile_rows<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<usize>, D::Error> {
    checked(from, |value: &Vec<_>| check_tile_rows(value))
}
