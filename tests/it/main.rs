//! The integration tests, as one binary.
mod chat;
mod sampler;
mod tokenizer;
