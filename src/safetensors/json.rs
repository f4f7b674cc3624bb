//! Reads the directory's JSON and text files, each up to a maximum size far above that of real
//! files.
//!
//! Parsed JSON can take about thirty times the size of its text, so files that are stored unparsed
//! have a higher limit. `serde_json` limits the nesting depth.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// Maximum size of a config in bytes. Real configs have a few thousand.
pub(super) const MAX_CONFIG: u64 = 1 << 20;
/// Maximum size in bytes of a file from which a few fields are kept. A tokenizer's config can list
/// thousands of tokens.
pub(super) const MAX_FIELDS: u64 = 1 << 26;
/// Maximum size of a vocabulary in bytes: about ten times the largest real one.
pub(super) const MAX_VOCABULARY: u64 = 1 << 29;

/// Reads the text of a file. Returns `None` if the file does not exist.
pub(super) fn text(path: &Path, max: u64) -> Result<Option<String>> {
    let io = |source| Error::Io { path: path.into(), source };
    let invalid = |what: String| Error::InvalidFile { path: path.into(), what };
    // Checked before opening, since opening a pipe waits for its writer.
    let status = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        status => status.map_err(io)?,
    };
    if !status.is_file() {
        return Err(invalid("is not a regular file".into()));
    }
    if status.len() > max {
        return Err(invalid(format!("has {} bytes, more than the limit of {max} for this file", status.len())));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(max).read_to_end(&mut bytes)).map_err(io)?;
    String::from_utf8(bytes).map(Some).map_err(|e| invalid(format!("is not UTF-8: {e}")))
}

/// Reads and parses a JSON file. Returns `None` if the file does not exist.
pub(super) fn optional<T: DeserializeOwned>(path: &Path, max: u64) -> Result<Option<T>> {
    text(path, max)?.map(|text| parse(path, &text)).transpose()
}

/// Parses the `text` of the file at `path`.
pub(super) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|e| Error::InvalidFile { path: path.into(), what: format!("is not JSON of the expected form: {e}") })
}
