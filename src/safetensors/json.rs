//! The directory's small files, read whole, each up to a length that none in use comes near.
//!
//! Parsed JSON may take some thirty times its text, so files whose text is kept unparsed may be longer. How deep values nest
//! is bounded by `serde_json`.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// The most bytes of a config, of which those in use have a few thousand.
pub(super) const MAX_CONFIG: u64 = 1 << 20;
/// The most bytes of a file of which a few fields are kept. That of a tokenizer's config may list thousands of tokens.
pub(super) const MAX_FIELDS: u64 = 1 << 26;
/// The most bytes of a vocabulary: some ten times the largest in use.
pub(super) const MAX_VOCABULARY: u64 = 1 << 29;

/// The file's text; `None` where there is no such file.
pub(super) fn text(path: &Path, max: u64) -> Result<Option<String>> {
    let io = |source| Error::Io { path: path.into(), source };
    let invalid = |what: String| Error::InvalidFile { path: path.into(), what };
    // Asked before opening, since opening a pipe waits for its writer.
    let status = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        status => status.map_err(io)?,
    };
    if !status.is_file() {
        return Err(invalid("is not a regular file".into()));
    }
    if status.len() > max {
        return Err(invalid(format!("has {} bytes, and {max} are the most that such a file can have", status.len())));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(max).read_to_end(&mut bytes)).map_err(io)?;
    String::from_utf8(bytes).map(Some).map_err(|e| invalid(format!("is not UTF-8: {e}")))
}

/// What the file holds; `None` where there is no such file.
pub(super) fn optional<T: DeserializeOwned>(path: &Path, max: u64) -> Result<Option<T>> {
    text(path, max)?.map(|text| parse(path, &text)).transpose()
}

pub(super) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|e| Error::InvalidFile { path: path.into(), what: format!("is not the JSON that is wanted: {e}") })
}
