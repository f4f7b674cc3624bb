//! Describes the work of an engine.

use std::time::Duration;

/// A snapshot of the engine that a [`Runner`](crate::Runner) and its clones share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Number of calls that the engine computes now, in one step.
    pub running: usize,
    /// Number of calls that wait for the next step.
    pub waiting: usize,
    /// Number of open sequences.
    pub sequences: usize,
    /// Number of pages in use in the cache; see [`cache_bytes`](Self::cache_bytes).
    pub pages: usize,
    /// Size of these pages in bytes.
    pub cache_bytes: u64,
    /// Number of further pages, which have the beginnings of earlier texts until an open sequence
    /// needs them.
    pub kept_pages: usize,
    /// Size of these pages in bytes.
    pub kept_bytes: u64,
    /// Number of tokens in all prompts so far.
    pub prompt_tokens: u64,
    /// Number of these tokens that were in the cache and not computed again.
    pub cached_tokens: u64,
    /// Number of steps so far.
    pub steps: u64,
    /// Number of tokens in these steps, except for steps that a GPU pipelined.
    pub tokens: u64,
    /// The time of all steps, except for steps that a GPU pipelined.
    pub busy: Duration,
    /// The largest number of calls that one step served.
    pub most_calls: usize,
}
