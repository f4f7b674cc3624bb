//! The integration tests, as one binary.

mod quant;
mod sampler;
mod support;
mod tokenizer;
