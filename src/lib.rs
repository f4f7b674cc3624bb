//! Runs language models inside your program.
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

pub mod backend;
mod dtype;
mod error;
pub mod generate;
pub mod gguf;
pub mod graph;
pub mod kv_cache;
pub mod models;
pub mod optimize;
pub mod plan;
pub mod quant;
pub mod sampler;
pub mod tokenizer;
pub mod weights;

pub use dtype::DType;
pub use error::{Error, Result};
