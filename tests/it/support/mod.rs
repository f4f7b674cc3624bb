//! What several test files share.

pub mod allocation;
pub mod checkpoint;
pub mod drive;
pub mod gguf_file;
pub mod graphs;
mod grids;
pub mod images;
pub mod interpret;
pub mod mmproj;
pub mod quantize;
pub mod recorder;
pub mod tiny;

use std::path::{Path, PathBuf};

use inkstone::{Device, Runner, RunnerBuilder};

/// A file of tests/data.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Returns a builder of runners on the CPU, for tests whose results rounding must not change: those
/// of GPUs differ from adapter to adapter.
pub fn on_cpu() -> RunnerBuilder {
    Runner::builder().device(Device::Cpu).threads(2)
}
