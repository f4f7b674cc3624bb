//! The integration tests, as one binary.

#[cfg(feature = "async")]
mod asynchronous;
mod backend;
mod chat;
mod chat_answers;
mod chat_injection;
mod chat_limits;
mod chat_runner;
mod errors;
mod examples;
mod generate;
mod gguf;
mod gguf_errors;
mod gguf_mutation;
#[cfg(any(feature = "wgpu", feature = "metal"))]
mod gpu;
#[cfg(feature = "constrained")]
mod grammar;
mod graph;
mod interpret;
mod layers;
mod loading;
mod many;
mod mapping;
mod models;
mod ops;
mod optimize;
mod own_template;
mod plan;
mod profile;
mod prompts;
mod quant;
mod qwen35;
mod readme;
mod runner;
mod safetensors;
mod safetensors_errors;
mod safetensors_mutation;
mod sampler;
mod score;
mod score_many;
mod step_sizes;
mod storyteller;
mod support;
mod tokenizer;
mod tokenizer_bert;
mod tokenizer_errors;
mod tokenizer_json;
mod tokenizer_pre;
mod tool_calls;
mod tool_choice;
#[cfg(feature = "constrained")]
mod typed;
mod weights;
mod windows;
