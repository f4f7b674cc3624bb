//! Guides for programs that use inkstone.
//!
//! - [`jobs`]: twelve common jobs, each as a short program.
//! - [`threads_and_memory`]: clones, threads, async code; which parts of a model are shared, and
//!   when memory is freed.
//! - [`images`]: models that see.
//! - [`models`]: the files that load, and the memory that they take.
//! - [`gpus`]: devices, self-tests, speed.
//! - [`tools`]: tool calls and reasoning.

#[doc = include_str!("gpus.md")]
pub mod gpus {}

#[doc = include_str!("images.md")]
pub mod images {}

#[doc = include_str!("jobs.md")]
pub mod jobs {}

#[doc = include_str!("models.md")]
pub mod models {}

#[doc = include_str!("threads_and_memory.md")]
pub mod threads_and_memory {}

#[doc = include_str!("tools.md")]
pub mod tools {}
