//! The integration tests, as one binary.

mod gguf;
mod gguf_errors;
mod gguf_mutation;
mod quant;
mod support;
mod weights;
