//! The integration tests, as one binary.

mod gguf;
mod gguf_errors;
mod gguf_mutation;
mod graph;
mod interpret;
mod optimize;
mod plan;
mod quant;
mod support;
mod weights;
