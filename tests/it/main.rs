//! The integration tests, as one binary.

mod backend;
mod gguf;
mod gguf_errors;
mod gguf_mutation;
mod graph;
mod interpret;
mod ops;
mod optimize;
mod plan;
mod quant;
mod support;
mod weights;
