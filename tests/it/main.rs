//! The integration tests, as one binary.

mod chat;
mod generate;
mod gguf;
mod gguf_errors;
mod gguf_mutation;
mod graph;
mod interpret;
mod optimize;
mod plan;
mod quant;
mod sampler;
mod support;
mod tokenizer;
mod weights;
