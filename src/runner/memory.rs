//! Computes the memory that a model takes, before it is loaded.

use std::fmt;

use crate::{
    Error, Result,
    backend::Backend,
    generate::Limits,
    graph::Graph,
    kv_cache::{CacheLayout, KvCache, PAGE_POSITIONS, SEQUENCE_STATES},
    plan::Plan,
    vision::EncoderMemory,
    weights::Weights,
};

/// The memory that a runner takes, in bytes, with the vision encoder of its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Size of the tensors as they are stored, with the tensors of the vision encoder.
    pub weights: u64,
    /// Size of the tensors that are read from the mapped file as long as the model is loaded. It is
    /// included in [`weights`](Self::weights). The system may drop these pages, and read them
    /// again.
    ///
    /// On a CPU, these are matrices in F32, F16 or BF16, and the embedding unless it is quantized
    /// and also the output matrix. Quantized matrices, including experts, and vectors are copied.
    /// On a GPU, and with [`copy_weights`](super::RunnerBuilder::copy_weights), it is 0. If it is
    /// not 0, the file must not be changed or shortened while the model is loaded.
    pub mapped: u64,
    /// Cache size of one token, in layers that attend to the whole context. The cache grows by
    /// pages of 64 tokens.
    pub cache_per_token: u64,
    /// Largest cache size of layers with sliding-window attention; 0 if there are none.
    pub windows: u64,
    /// Size of the states of recurrent layers, including checkpoints; 0 if there are none.
    pub states: u64,
    /// Largest number of tokens in the sequence.
    pub context_length: usize,
    /// Largest working memory of a step.
    pub scratch: u64,
    /// Working memory of the vision encoder for the largest picture that it takes and whose tokens
    /// fit in the context; 0 without an encoder. Smaller pictures take less.
    pub vision_scratch: u64,
    /// All memory of the draft model with a full context; 0 without one.
    pub draft: u64,
}

impl MemoryPlan {
    pub(super) fn new(
        backend: &dyn Backend,
        graph: &Graph,
        head: Option<&Graph>,
        weights: &Weights,
        layout: &CacheLayout,
        context_length: usize,
        limits: Limits,
    ) -> Result<Self> {
        let Limits { max_tokens, max_outputs, .. } = limits;
        let plan = Plan::new(graph)?;
        let head = head.map(Plan::new).transpose()?;
        let in_place: Vec<_> = [&plan].into_iter().chain(&head).flat_map(|plan| backend.reads_in_place(plan)).collect();
        let scratch =
            |plan: &Plan, outputs: usize| backend.scratch_bytes(plan, max_tokens, outputs, context_length) as u64;
        Ok(Self {
            weights: weights.total_bytes(),
            mapped: weights.mapped_bytes(in_place.iter().map(|name| &**name)),
            cache_per_token: layout.bytes_per_token() as u64,
            windows: layout.window_bytes(context_length, max_tokens),
            states: (layout.state_bytes as u64).saturating_mul(SEQUENCE_STATES as u64),
            context_length,
            scratch: scratch(&plan, max_outputs) + head.as_ref().map_or(0, |head| scratch(head, 1)),
            vision_scratch: 0,
            draft: 0,
        })
    }

    /// Counts a vision encoder.
    pub(super) fn add_encoder(&mut self, encoder: &EncoderMemory) {
        self.weights += encoder.weights;
        self.mapped += encoder.mapped;
        self.vision_scratch += encoder.scratch;
    }

    /// Returns the cache size of a full context, in whole pages. Up to this size, or the rest of
    /// the [`memory_limit`](super::RunnerBuilder::memory_limit), the cache keeps earlier texts.
    pub fn cache(&self) -> u64 {
        let positions = self.context_length.next_multiple_of(PAGE_POSITIONS) as u64;
        positions.saturating_mul(self.cache_per_token).saturating_add(self.windows)
    }

    /// Returns the total size with a full context.
    pub fn total(&self) -> u64 {
        self.besides_pages().saturating_add(self.cache())
    }

    /// Returns the size of everything but the cache's pages.
    fn besides_pages(&self) -> u64 {
        let parts = [self.weights, self.scratch, self.vision_scratch, self.states, self.draft];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the cache's share of a memory limit. Without a limit, only the memory in which
    /// beginnings of earlier texts are kept is limited: to that of a full context.
    ///
    /// # Errors
    /// [`Error::Memory`] if the limit has no room for a full context.
    pub(super) fn cache_limits(&self, limit: Option<u64>) -> Result<CacheLimits> {
        match limit {
            Some(limit) if self.total() > limit => {
                Err(Error::Memory { what: "the model with a full context", needed: self.total(), limit })
            }
            Some(limit) => {
                let page_bytes = limit - self.besides_pages();
                Ok(CacheLimits { page_bytes, states: SEQUENCE_STATES, kept_bytes: page_bytes })
            }
            None => Ok(CacheLimits { page_bytes: u64::MAX, states: usize::MAX, kept_bytes: self.cache() }),
        }
    }
}

/// The limits of a cache.
pub(super) struct CacheLimits {
    /// Total size of pages in bytes.
    page_bytes: u64,
    /// Number of states of recurrent layers.
    states: usize,
    /// Size in bytes up to which the pages of all sequences grow so that earlier texts are kept.
    kept_bytes: u64,
}

impl CacheLimits {
    /// Limits a cache that keeps earlier texts.
    pub fn limit(&self, cache: KvCache) -> KvCache {
        cache.with_limits(self.page_bytes, self.states).keeping(self.kept_bytes, SEQUENCE_STATES)
    }
}

/// Prints one line for each figure.
impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "weights          {:>12}", bytes(self.weights))?;
        if self.mapped > 0 {
            writeln!(f, "  of them mapped {:>12}", bytes(self.mapped))?;
        }
        writeln!(f, "scratch          {:>12}", bytes(self.scratch))?;
        if self.vision_scratch > 0 {
            writeln!(f, "vision scratch   {:>12}", bytes(self.vision_scratch))?;
        }
        if self.draft > 0 {
            writeln!(f, "draft model      {:>12}", bytes(self.draft))?;
        }
        if self.states > 0 {
            writeln!(f, "recurrent states {:>12}", bytes(self.states))?;
        }
        if self.windows > 0 {
            writeln!(f, "sliding windows  {:>12}", bytes(self.windows))?;
        }
        writeln!(f, "cache per token  {:>12}", bytes(self.cache_per_token))?;
        writeln!(f, "cache, {:>8}  {:>12}", self.context_length, bytes(self.cache()))?;
        write!(f, "total            {:>12}", bytes(self.total()))
    }
}

fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}
