//! Pages about programs that use inkstone.
//!
//! - [`threads_and_memory`]: clones, threads, async code; which parts of a model are shared, and when memory is freed.
//! - [`jobs`]: twelve common jobs, each as a short program.

#[doc = include_str!("threads_and_memory.md")]
pub mod threads_and_memory {}

#[doc = include_str!("jobs.md")]
pub mod jobs {}
