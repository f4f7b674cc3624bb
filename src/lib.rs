//! Runs language models inside your program.
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

mod dtype;
mod error;
pub mod gguf;
pub mod graph;
pub mod sampler;

pub use dtype::DType;
pub use error::{Error, Result};
