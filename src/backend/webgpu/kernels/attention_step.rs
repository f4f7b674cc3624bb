//! Attention of single tokens.

use serde::Serialize;

use super::{F32, PagedCache, Records, Rotation, ScoreParams, Strided, Template};
use crate::backend::webgpu::{
    context::Traits,
    kernel::{Binding, Resource, reads, writes},
    step::SPLIT,
    tiles,
};

/// Attention of single tokens over the cache.
///
/// A workgroup attends to `split` positions of one token, with up to `lanes` query heads that share
/// a key-value head.
#[derive(Debug, Serialize)]
pub struct AttentionStep {
    /// How the work is divided.
    pub shape: StepShape,
    /// The least size of a subgroup, if invocations exchange values within one.
    pub subgroup: Option<u32>,
    /// The layer's cache.
    pub cache: PagedCache,
    /// Query heads.
    pub heads: usize,
    /// What becomes of scores.
    pub scores: ScoreParams,
    /// The tokens' records.
    pub records: Records,
    /// The first word, in the step's buffer, of its page tables.
    pub tables_at: usize,
    /// The queries, `[tokens, heads, head_dim]`; before norm and rotation if there is `new`.
    pub q: Strided,
    /// The result, if a workgroup has all positions of a token. Otherwise `attention_combine` joins
    /// the parts.
    pub output: Option<AttentionOutput>,
    /// The tokens' own keys and values, if the kernel makes and appends them.
    pub new: Option<NewToken>,
}

/// Where attention's result goes, `[tokens, heads, head_dim]`.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AttentionOutput {
    /// As f32.
    F32 {
        /// Elements from the start of a token's row to the start of the next.
        stride: usize,
        /// The buffer of the rows.
        #[serde(skip)]
        rows: Resource,
    },
    /// As int8 in blocks of 32 (`shared/q8.wgsl`).
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

/// The keys and values of the step's own tokens, which are not in the cache yet.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NewToken {
    /// The keys before norm and rotation, `[tokens, kv_heads, head_dim]`.
    pub k: Strided,
    /// The values, `[tokens, kv_heads, head_dim]`.
    pub v: Strided,
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

/// How the work of [`AttentionStep`] is divided.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepShape {
    /// Invocations of a workgroup.
    pub workgroup: usize,
    /// Positions of a workgroup.
    pub split: usize,
    /// Query heads that share a key-value head.
    pub group_heads: usize,
    /// Query heads of a workgroup: 1, 2 or 4.
    pub lanes: usize,
    /// Workgroups of a key-value head's query heads.
    pub chunks: usize,
    /// Words of a value that the invocations of a position have at a time.
    pub words_at_once: usize,
    /// Positions whose values are read side by side, a power of two.
    pub groups: usize,
    /// Words of keys that an invocation reads ahead.
    pub keys_at_once: usize,
    /// Words of values that an invocation reads ahead, for each of its words of a position.
    pub values_at_once: usize,
    /// Words of keys that invocations are divided among at least, a power of two.
    pub fewest_words: usize,
    /// Elements of the workgroup's memory for parts of scores, weights and parts of sums.
    pub shared: usize,
}

impl StepShape {
    /// Divides the work of tokens whose cache is no longer than `alone` positions, or of longer
    /// ones if there is none such.
    pub fn new(traits: &Traits, cache: &PagedCache, group_heads: usize, alone: Option<usize>) -> Self {
        // Within a split there is work for few processors, so that each head has its own; beyond it
        // keys and values are read once for several.
        let lanes = match (alone, group_heads) {
            (Some(_), _) => 1,
            (None, 1 | 2) => group_heads,
            (None, _) => 4,
        };
        let PagedCache { per_word, dim, .. } = *cache;
        let split = alone.unwrap_or(SPLIT);
        let workgroup = tiles::step_workgroup(traits, alone.is_none(), split / per_word, per_word * lanes);
        let words_at_once = (dim / per_word).min(workgroup);
        // A power of two, so that a batch of positions lies in whole pages or in one.
        let groups = 1 << (workgroup / words_at_once).ilog2();
        // Many loads of few invocations are under way together, or fewer of many.
        let keys_at_once = if alone.is_none() { 16 } else { 8 };
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
        let cache = if self.new.is_some() { writes } else { reads };
        let output =
            self.output.map_or_else(|| writes("partials", "f32", Resource::Partials), AttentionOutput::binding);
        let mut bindings = vec![reads("q", "f32", self.q.rows), cache("cache", "u32", self.cache.pages), output];
        if let Some(new) = self.new {
            bindings.extend([reads("k", "f32", new.k.rows), reads("v", "f32", new.v.rows)]);
            if let Some(norms) = new.norms {
                bindings.extend([reads("q_norm", "f32", norms.q), reads("k_norm", "f32", norms.k)]);
            }
        }
        bindings
    }
}

/// Joins the parts that [`AttentionStep`] leaves of each split of a token's positions: a maximum, a
/// total and sums for each head.
#[derive(Debug, Serialize)]
pub struct AttentionCombine {
    /// Invocations of a workgroup, which has a head of a token.
    pub workgroup: u32,
    /// The least size of a subgroup, if invocations exchange values within one.
    pub subgroup: Option<u32>,
    /// Query heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head in the cache and in the parts.
    pub dim: usize,
    /// Positions that a token sees, if not all up to its own.
    pub window: Option<usize>,
    /// Positions of a split.
    pub split: usize,
    /// Parts that are summed side by side.
    pub groups: usize,
    /// Parts that an invocation reads ahead.
    pub at_once: usize,
    /// The tokens' records.
    pub records: Records,
    /// The result.
    pub output: AttentionOutput,
}

impl Template for AttentionCombine {
    const NAME: &'static str = "attention_combine";

    fn bindings(&self) -> Vec<Binding> {
        vec![reads("partials", "f32", Resource::Partials), self.output.binding()]
    }
}
