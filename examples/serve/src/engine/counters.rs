//! Counts the work of the server.

use std::sync::atomic::{AtomicU64, Ordering};

use inkstone::Summary;

/// Sums over all answers.
#[derive(Default)]
pub struct Counters {
    /// Number of complete answers.
    pub answers: AtomicU64,
    /// Number of answers that failed.
    pub failures: AtomicU64,
    /// Number of tokens of prompts.
    pub prompt_tokens: AtomicU64,
    /// Number of tokens of prompts that were in the cache.
    pub cached_tokens: AtomicU64,
    /// Number of generated tokens.
    pub generated_tokens: AtomicU64,
}

impl Counters {
    /// Adds an answer, which may have been stopped.
    pub fn add(&self, summary: &Summary) {
        let add = |counter: &AtomicU64, count: usize| _ = counter.fetch_add(count as u64, Ordering::Relaxed);
        add(&self.answers, 1);
        add(&self.prompt_tokens, summary.prompt_tokens);
        add(&self.cached_tokens, summary.cached_tokens);
        add(&self.generated_tokens, summary.generated_tokens);
    }

    /// Adds an answer that failed.
    pub fn add_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}
