#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

pub mod backend;
#[cfg(feature = "chat")]
pub mod chat;
mod dtype;
mod error;
pub mod generate;
pub mod gguf;
#[cfg(feature = "constrained")]
pub mod grammar;
pub mod graph;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod kv_cache;
pub mod models;
pub mod optimize;
pub mod plan;
pub mod quant;
pub mod runner;
mod safetensors;
pub mod sampler;
mod simd;
pub mod tokenizer;
mod tool_call;
pub mod weights;

pub use backend::{Adapter, Device};
#[cfg(feature = "chat")]
pub use chat::Message;
pub use dtype::DType;
pub use error::{Error, Result};
pub use generate::{Completion, GenerateOptions, GenerateRequest, Generation, Prompt, StopHandle, StopReason, Summary};
pub use kv_cache::CacheType;
#[cfg(feature = "chat")]
pub use runner::Answer;
#[cfg(feature = "async")]
pub use runner::AsyncRunner;
pub use runner::{LmRunner, MemoryPlan, Runner, RunnerBuilder};
pub use sampler::SamplerOptions;
