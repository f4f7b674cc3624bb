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
    /// Number of calls that wait for memory of the cache.
    pub short_of_memory: usize,
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
    /// The limit of [`cache_bytes`](Self::cache_bytes), if a
    /// [`memory_limit`](crate::RunnerBuilder::memory_limit) is set.
    pub cache_limit: Option<u64>,
    /// Number of steps so far.
    pub steps: u64,
    /// Number of tokens in these steps, except for steps that a GPU pipelined.
    pub tokens: u64,
    /// Number of these tokens that were computed before, and that the cache had lost: after a
    /// preemption, for example.
    pub recomputed_tokens: u64,
    /// The time of all steps, except for steps that a GPU pipelined.
    pub busy: Duration,
    /// Number of these steps by their time: as long as each of
    /// [`STEP_TIMES`](Self::STEP_TIMES) at most and longer than the one before it, and in the end
    /// the steps that were longer than all.
    pub step_times: [u64; 9],
    /// The largest number of calls that one step served.
    pub most_calls: usize,
    /// Number of times that a sequence of a running request lost its part of the cache to a request
    /// that comes first.
    pub preemptions: u64,
    /// Number of times that a sequence lost its part of the cache between requests.
    pub evictions: u64,
}

impl Statistics {
    /// The upper bounds of [`step_times`](Self::step_times).
    pub const STEP_TIMES: [Duration; 8] = [
        Duration::from_micros(500),
        Duration::from_millis(1),
        Duration::from_millis(3),
        Duration::from_millis(10),
        Duration::from_millis(30),
        Duration::from_millis(100),
        Duration::from_millis(300),
        Duration::from_secs(1),
    ];

    /// Adds a step of `tokens` tokens.
    pub(super) fn add_step(&mut self, tokens: usize, time: Duration) {
        self.tokens += tokens as u64;
        self.busy += time;
        self.step_times[Self::STEP_TIMES.partition_point(|bound| *bound < time)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_their_time() {
        let mut statistics = Statistics::default();
        for micros in [0, 500, 501, 1_000_000, 1_000_001, 9_000_000] {
            statistics.add_step(3, Duration::from_micros(micros));
        }
        assert_eq!(statistics.step_times, [2, 1, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!((statistics.tokens, statistics.busy), (18, Duration::from_micros(11_001_002)));
    }
}
