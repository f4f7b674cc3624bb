//! Runs language models: loads a GGUF file or a directory of safetensors, and streams text.
//!
//! ```no_run
//! use inkstone::{GenerateOptions, Message, Runner};
//!
//! let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
//! for piece in runner.chat(&[Message::user("Why is the sky blue?")], &GenerateOptions::default())? {
//!     print!("{}", piece?);
//! }
//! # Ok::<(), inkstone::Error>(())
//! ```
//!
//! # Tasks
//!
//! | you want | use |
//! |---|---|
//! | to ask one question | [`Runner::ask`] |
//! | to chat | [`Runner::chat`] |
//! | to continue a text, or token ids | [`Runner::generate`] |
//! | reasoning, tool calls, documents | [`Runner::chat_with`], [`Answer::events`], [`guide::tools`] |
//! | JSON as a value of a Rust type | [`Runner::generate_as`], [`Runner::chat_as`] |
//! | text that follows a schema, regular expression or grammar | [`GenerateOptions::grammar`], [`grammar`] |
//! | temperature, top-k, top-p, penalties, a seed | [`SamplerOptions`] |
//! | your own rule for the next token | [`Generation::with_processor`], [`sampler::LogitsProcessor`] |
//! | stop strings, a token limit | [`GenerateOptions`] |
//! | to stop a generation from another thread | [`Generation::stop_handle`] |
//! | why and how fast a generation ended | [`Generation::summary`] |
//! | each token with its text and probability | [`Generation::tokens`] |
//! | to save and load a conversation | [`Message`], with serde |
//! | to keep what the model has computed for a text after the process ends | [`Runner::save`], [`Runner::restore`] |
//! | to show the model a picture | [`Message::image`], [`Image`], [`guide::images`] |
//! | many texts in one batch | [`Runner::generate_many`] |
//! | a small model that drafts tokens, so that text comes faster | [`RunnerBuilder::draft`], [`Drafter`] |
//! | the probability of tokens, a text, or labels | [`GenerateOptions::logprobs`], [`Runner::score`], [`Runner::score_many`] |
//! | token ids or logits | [`Runner::generate_ids`], [`Runner::prefill`], [`Runner::decode`] |
//! | sequences that share a beginning, logits of every token | [`Runner::decoder_mut`], [`Decoder`] |
//! | the machine's GPUs | [`Device::gpus`] |
//! | a device, threads, context length, cache format, memory limit | [`Runner::builder`], [`guide::gpus`] |
//! | to know whether a file runs, and what is missing if not | [`RunnerBuilder::check`] |
//! | the memory that a model will take | [`RunnerBuilder::plan`] |
//! | the progress of loading, and to cancel it | [`RunnerBuilder::on_progress`] |
//! | several conversations of one model | [`Runner::clone`](Runner#impl-Clone-for-Runner), [`guide::threads_and_memory`] |
//! | async code | [`AsyncRunner`] |
//! | one trait for any model | [`LmRunner`] |
//!
//! # Modules
//!
//! ```text
//! messages ──▶ chat ──▶ tokenizer ──▶ Decoder ──▶ sampler ──▶ tokenizer ──▶ chat ──▶ answer
//!    images ──▶ vision encoder ──▶ rows ──▲          ▲
//!                           gguf ──▶ weights      grammar
//! ```
//!
//! [`Runner`] owns the whole path. The modules are for programs that need one stage: [`gguf`] reads
//! files, [`tokenizer`] turns text into ids and back, [`chat`] renders templates and parses
//! answers, [`sampler`] chooses tokens, [`grammar`] constrains them. A [`Decoder`] runs the model
//! over sequences of ids. [`guide`] has pages to read.
//!
//! # Features
//!
//! | feature | default | gives | needs |
//! |---|---|---|---|
//! | `cpu` | yes | the CPU backend | |
//! | `chat` | yes | chat templates, answers with reasoning and tool calls | minijinja, jiff |
//! | `safetensors` | yes | directories of safetensors; turns on `tokenizers` | safetensors |
//! | `image` | yes | [`Image::open`]: PNG, JPEG, WebP, GIF | png, zune-jpeg, image-webp, gif |
//! | `tokenizers` | yes | `tokenizer.json`, and WordPiece vocabularies of GGUF files | tokenizers |
//! | `wgpu` | | any GPU, through Vulkan, DX12 or Metal | wgpu, minijinja |
//! | `metal` | | Apple's GPUs only | wgpu, minijinja |
//! | `async` | | [`AsyncRunner`] | futures-core, futures-channel |
//! | `constrained` | | grammars, JSON of a type; turns on `chat` | llguidance, schemars |
//!
//! A model that needs a feature that is off is an [`Error::MissingFeature`]. Rust 1.89 or newer
//! compiles the crate.
//!
//! # Not here
//!
//! Downloads from a hub, audio, video, embeddings, LoRA adapters, and an HTTP server, which is an
//! example with a package of its own, `examples/serve`. The library does not quantize: the example
//! `quantize` writes llama.cpp's bytes. Training is out of scope.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "async", feature = "constrained", feature = "image")),
    allow(rustdoc::broken_intra_doc_links, reason = "some links lead to items of features that are off")
)]
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

mod backend;
#[cfg(feature = "chat")]
pub mod chat;
mod dtype;
mod error;
mod generate;
pub mod gguf;
#[cfg(feature = "constrained")]
pub mod grammar;
mod graph;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod image;
#[doc(hidden)]
pub mod internals;
mod kv_cache;
mod models;
mod optimize;
mod plan;
mod profile;
mod quant;
mod runner;
mod safetensors;
pub mod sampler;
mod simd;
pub mod tokenizer;
mod tool_call;
mod vision;
mod weights;

pub use backend::{Adapter, Device, DeviceInfo, OpTime};
#[cfg(feature = "chat")]
pub use chat::Message;
pub use dtype::DType;
pub use error::{Error, Result};
pub use generate::{
    Completion, Decoder, Drafter, GenerateOptions, GenerateRequest, GeneratedToken, GeneratedTokens, Generation,
    LogitsFor, Prefill, Prompt, PromptPart, Speculation, SpeculationSummary, Statistics, StopHandle, StopReason,
    Summary,
};
pub use image::Image;
pub use kv_cache::{CacheType, SequenceId};
pub use models::{Config, FileContent};
pub use profile::{GpuProfile, MadeFor, Profile, ProfileFile};
#[cfg(feature = "chat")]
pub use runner::{Answer, AnswerEvents};
#[cfg(all(feature = "async", feature = "chat"))]
pub use runner::{AnswerEventStream, AnswerStream};
#[cfg(feature = "async")]
pub use runner::{AsyncRunner, GenerationStream, Reply};
pub use runner::{LmRunner, MemoryPlan, Obstacle, ObstacleKind, Runner, RunnerBuilder, Verdict};
pub use sampler::SamplerOptions;

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
