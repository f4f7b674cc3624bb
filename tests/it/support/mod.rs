//! What several test files share.

use std::path::{Path, PathBuf};

pub mod allocation;
pub mod checkpoint;
pub mod drive;
pub mod gguf_file;
pub mod graphs;
pub mod interpret;
pub mod quantize;
pub mod recorder;
pub mod tiny;

/// A file of tests/data.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
