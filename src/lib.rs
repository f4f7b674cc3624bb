#![doc = include_str!("../README.md")]
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

pub mod backend;
pub mod chat;
mod dtype;
mod error;
pub mod generate;
pub mod gguf;
#[cfg(feature = "constrained")]
pub mod grammar;
pub mod graph;
pub mod kv_cache;
pub mod models;
pub mod optimize;
pub mod plan;
pub mod quant;
pub mod runner;
mod safetensors;
pub mod sampler;
pub mod tokenizer;
mod tool_call;
pub mod weights;

pub use backend::{Adapter, Device};
pub use chat::Message;
pub use dtype::DType;
pub use error::{Error, Result};
pub use generate::{Completion, GenerateOptions, GenerateRequest, Generation, Prompt, StopHandle, StopReason, Summary};
pub use kv_cache::CacheType;
#[cfg(feature = "async")]
pub use runner::AsyncRunner;
pub use runner::{Answer, LmRunner, MemoryPlan, Runner, RunnerBuilder};
pub use sampler::SamplerOptions;
