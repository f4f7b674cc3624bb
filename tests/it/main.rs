//! The integration tests, as one binary.
mod sampler;
mod tokenizer;
