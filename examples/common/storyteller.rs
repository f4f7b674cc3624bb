//! The small model that comes with this crate.

use std::path::PathBuf;

/// Where it lies.
pub fn path() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/storyteller/storyteller.gguf").into()
}
