//! Defines the parameters of attention of single tokens.

use serde::Serialize;

use super::{AttentionWindow, BoundBuffer, F32, PagedCache, Records, Rotation, ScoreParams, Strided, Template};
use crate::{
    backend::webgpu::{
        context::Traits,
        kernel::{Binding, Resource, reads, writes},
        lower::GEMV_ROWS,
        step::SPLIT,
        tiles,
    },
    kv_cache::PAGE_POSITIONS,
};

/// Attention of single tokens over the cache.
///
/// A workgroup attends to `split` positions of one token, with up to `lanes` query heads that share
/// a key-value head.
#[derive(Debug, Serialize)]
pub struct AttentionStep {
    /// The division of the work.
    pub shape: StepShape,
    /// Largest number of positions of a token that are not split.
    pub unsplit_positions: usize,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// The layer's cache.
    pub cache: PagedCache,
    /// Number of query heads.
    pub heads: usize,
    /// The operations on scores.
    pub scores: ScoreParams,
    /// The tokens' records.
    pub records: Records,
    /// The first word, in the step's buffer, of its page tables.
    pub tables_at: usize,
    /// A further score of each head, of a value of 0, if there are sinks.
    pub sinks: Option<BoundBuffer>,
    /// The queries, `[tokens, heads, head_dim]`; with `new`, before norm and rotation.
    pub q: Strided,
    /// The result, if a workgroup attends to all positions of a token. Otherwise
    /// `attention_combine` merges the partial results of the splits.
    pub output: Option<AttentionOutput>,
    /// The keys and values of the step's tokens, if this kernel norms and rotates them.
    pub new: Option<NewToken>,
}

/// The result of attention, `[tokens, heads, head_dim]`.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AttentionOutput {
    /// f32.
    F32 {
        /// Elements from the start of a token's row to the start of the next.
        stride: usize,
        /// The buffer of the rows.
        #[serde(skip)]
        rows: Resource,
    },
    /// int8 in blocks of 32 (`shared/q8.wgsl`).
    Q8 {
        /// Blocks of a token's row.
        blocks: usize,
        /// The buffer of the rows.
        #[serde(skip)]
        rows: Resource,
    },
}

impl AttentionOutput {
    fn binding(self) -> Binding {
        match self {
            Self::F32 { rows, .. } => writes("y", "f32", rows),
            Self::Q8 { rows, .. } => writes("y_q8", "u32", rows),
        }
    }
}

/// The keys and values of the step's tokens.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NewToken {
    /// The keys, `[tokens, kv_heads, head_dim]`.
    pub k: Strided,
    /// The values, `[tokens, kv_heads, head_dim]`.
    pub v: Strided,
    /// Whether this kernel appends them to the cache. Otherwise another kernel has.
    pub appends: bool,
    /// The operations on queries and keys before attention.
    pub before: NormedRotation,
}

/// The norms and the rotation of queries and keys.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NormedRotation {
    /// The norms of queries and keys.
    pub norms: Option<HeadNorms>,
    /// The rotation of queries and keys, after the norms.
    pub rotation: Rotation,
}

/// The RMS norms of query heads and key heads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HeadNorms {
    /// Added to the mean square.
    pub eps: F32,
    /// 1 / the elements of a head.
    pub reciprocal: F32,
    /// The buffer of the queries' weights, `[head_dim]`.
    #[serde(skip)]
    pub q: Resource,
    /// The buffer of the keys' weights, `[head_dim]`.
    #[serde(skip)]
    pub k: Resource,
}

/// The division of the work of [`AttentionStep`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepShape {
    /// Invocations of a workgroup.
    pub workgroup: usize,
    /// Largest number of positions that a workgroup attends to.
    pub split: usize,
    /// Query heads that share a key-value head.
    pub group_heads: usize,
    /// Query heads of a workgroup: 1, 2 or 4.
    pub lanes: usize,
    /// Workgroups for the query heads of a key-value head.
    pub chunks: usize,
    /// Words of a value that are read at a time, by an invocation each.
    pub words_at_once: usize,
    /// Positions whose values are read at the same time, a power of two.
    pub groups: usize,
    /// Words of keys that an invocation reads ahead.
    pub keys_at_once: usize,
    /// Words of values that an invocation reads ahead, for each of its words of a position.
    pub values_at_once: usize,
    /// Smallest number of words of keys among which invocations are divided, a power of two.
    pub fewest_words: usize,
    /// Elements of the workgroup's memory for partial scores, weights and partial sums, in turn.
    pub shared: usize,
}

/// The largest number of tokens whose query heads have a workgroup each.
pub const FEWEST_TOKENS: usize = 4;

impl StepShape {
    /// Divides the work of steps of up to `tokens` tokens that see up to `unsplit` positions, or of
    /// tokens whose positions are split if it is `None`.
    pub fn new(traits: &Traits, cache: &PagedCache, group_heads: usize, unsplit: Option<usize>, tokens: usize) -> Self {
        let PagedCache { per_word, dim, .. } = *cache;
        let split = unsplit.unwrap_or(SPLIT);
        // With splits or many tokens there are enough workgroups, and keys and values are read once
        // for several heads.
        let many = unsplit.is_none() || tokens > GEMV_ROWS;
        let workgroup_of = |lanes: usize| tiles::step_workgroup(traits, many, split, per_word, lanes);
        let widest = if group_heads < 3 { group_heads } else { 4 };
        let lanes = if many {
            widest
        } else if tokens <= FEWEST_TOKENS {
            // A workgroup for each query head occupies more processors.
            1
        } else {
            // Workgroups of the same size compute the same sums.
            [widest, 2].into_iter().find(|lanes| workgroup_of(*lanes) == workgroup_of(1)).unwrap_or(1)
        };
        let workgroup = workgroup_of(lanes);
        let words_at_once = (dim / per_word).min(workgroup);
        // A power of two, so that a batch of positions covers whole pages or lies in one page; and
        // not more than a page, so that positions read at the same time lie in one. Keys as values
        // have an invocation for each element.
        let most_groups = if cache.matrices == 1 { 1 } else { PAGE_POSITIONS };
        let groups = (1 << (workgroup / words_at_once).ilog2()).min(most_groups);
        // Small workgroups need more outstanding loads for each invocation.
        let keys_at_once = if many { 16 } else { 8 };
        Self {
            workgroup,
            split,
            group_heads,
            lanes,
            chunks: group_heads.div_ceil(lanes),
            words_at_once,
            groups,
            keys_at_once,
            values_at_once: keys_at_once.min(split / groups),
            fewest_words: (workgroup * keys_at_once / dim).next_power_of_two().clamp(1, split / per_word),
            shared: (workgroup * per_word).max(split).max(groups * dim),
        }
    }
}

impl Template for AttentionStep {
    const NAME: &'static str = "attention_step";

    fn bindings(&self) -> Vec<Binding> {
        let cache = if self.new.is_some_and(|new| new.appends) { writes } else { reads };
        let output =
            self.output.map_or_else(|| writes("partials", "f32", Resource::Partials), AttentionOutput::binding);
        let mut bindings = vec![reads("q", "f32", self.q.rows), cache("cache", "u32", self.cache.pages), output];
        if let Some(new) = self.new {
            bindings.extend([reads("k", "f32", new.k.rows), reads("v", "f32", new.v.rows)]);
            if let Some(norms) = new.before.norms {
                bindings.extend([reads("q_norm", "f32", norms.q), reads("k_norm", "f32", norms.k)]);
            }
        }
        bindings.extend(self.sinks.filter(|_| self.output.is_some()).map(|sinks| reads("sinks", "f32", sinks.0)));
        bindings
    }
}

/// Merges the partial results of a token's splits: for each head the maximum score, the sum of the
/// weights, and the weighted sum of the values.
#[derive(Debug, Serialize)]
pub struct AttentionCombine {
    /// Invocations of a workgroup, which computes a head of a token.
    pub workgroup: u32,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// Number of query heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head in the cache and in the partial results.
    pub dim: usize,
    /// The limit of the positions that a token sees; `None` for full attention.
    pub window: Option<AttentionWindow>,
    /// Largest number of positions of a token that are not split.
    pub unsplit_positions: usize,
    /// Positions of a split.
    pub split: usize,
    /// Partial results that are summed at the same time.
    pub groups: usize,
    /// Partial results that an invocation reads ahead.
    pub at_once: usize,
    /// The tokens' records.
    pub records: Records,
    /// A further score of each head, of a value of 0, if there are sinks.
    pub sinks: Option<BoundBuffer>,
    /// The result.
    pub output: AttentionOutput,
}

impl Template for AttentionCombine {
    const NAME: &'static str = "attention_combine";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![reads("partials", "f32", Resource::Partials), self.output.binding()];
        bindings.extend(self.sinks.map(|sinks| reads("sinks", "f32", sinks.0)));
        bindings
    }
}
