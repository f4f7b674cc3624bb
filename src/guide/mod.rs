//! Explains how programs use inkstone.
//!
//! - [`threads_and_memory`]: clones, threads and async code; shared parts of a model, and the life of
//!   its memory.
//! - [`jobs`]: twelve common jobs, each as a short program.

#[doc = include_str!("threads_and_memory.md")]
pub mod threads_and_memory {}

#[doc = include_str!("jobs.md")]
pub mod jobs {}
