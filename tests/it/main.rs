//! The integration tests, as one binary.

mod api;
mod backend;
mod chat;
mod fuzz_findings;
mod gguf;
mod graph;
mod image;
mod layers;
mod models;
mod report;
mod safetensors;
mod support;
mod tokenizer;
mod vision;
