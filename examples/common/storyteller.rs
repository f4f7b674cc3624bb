//! Locates the small model in this repository.

use std::path::PathBuf;

/// Returns the path of the model.
pub fn path() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/storyteller/storyteller.gguf").into()
}
