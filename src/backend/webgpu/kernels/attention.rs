//! Defines the parameters of the paged cache, and of attention of more than 16 tokens.

use serde::{Serialize, Serializer};

use super::{BoundBuffer, F32, Norm, Records, Rotation, SoftCap, Strided, Template};
use crate::{
    backend::webgpu::kernel::{Binding, Resource, reads, writes},
    graph::Window,
    kv_cache::{CacheType, PAGE_POSITIONS},
};

/// The format of cached keys and values. Its value in templates is `f32`, `f16` or `q8_0`.
#[derive(Clone, Copy, Debug)]
pub struct CacheTypeName(pub CacheType);

impl Serialize for CacheTypeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = match self.0 {
            CacheType::F32 => "f32",
            CacheType::F16 => "f16",
            CacheType::Q8_0 => "q8_0",
        };
        serializer.serialize_newtype_struct("CacheTypeName", name)
    }
}

/// A layer's keys and values in pages of 64 positions.
///
/// A page has the keys of each head, `[dim, 64]`, and then, unless keys are values too, the values
/// of each head, `[64, dim]`. In q8_0, 32 elements of a head share an f16 scale. The scales follow
/// the elements: of the keys of each head, `[dim / 32, 64]`, and then of the values of each head,
/// `[64, dim / 32]`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PagedCache {
    /// The format of the elements.
    pub format: CacheTypeName,
    /// Elements in a 32-bit word.
    pub per_word: usize,
    /// Words of a page.
    pub page_words: usize,
    /// The first word, in a page, of its scales.
    pub scales_at: usize,
    /// The index of the layer's page table among the sequence's tables.
    pub table: usize,
    /// Number of page tables of a sequence, whose entries alternate.
    pub tables: usize,
    /// Number of key-value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head in the cache: `head_dim` padded with zeros to a multiple of 16.
    pub dim: usize,
    /// Matrices of a head in a page: 2, or 1 if keys are values too.
    pub matrices: usize,
    /// The buffer of the layer's pages.
    #[serde(skip)]
    pub pages: Resource,
}

/// The shape of a layer's cache.
pub struct CacheShape {
    /// The format of the elements.
    pub cache_type: CacheType,
    /// The index of the layer.
    pub layer: usize,
    /// The index of the layer's page table among the sequence's tables.
    pub table: usize,
    /// Number of page tables of a sequence.
    pub tables: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Whether keys are values too.
    pub keys_only: bool,
}

impl From<CacheShape> for PagedCache {
    fn from(shape: CacheShape) -> Self {
        let CacheShape { cache_type, layer, table, tables, kv_heads, head_dim, keys_only } = shape;
        let dim = padded(head_dim);
        let matrices = if keys_only { 1 } else { 2 };
        let elements = matrices * kv_heads * PAGE_POSITIONS * dim;
        let (page_words, scales_at) = match cache_type {
            CacheType::F32 => (elements, 0),
            CacheType::F16 => (elements / 2, 0),
            CacheType::Q8_0 => (elements / 32 * 34 / 4, elements / 4),
        };
        let per_word = elements_per_word(cache_type);
        let (format, pages) = (CacheTypeName(cache_type), Resource::Cache(layer));
        Self { format, per_word, page_words, scales_at, table, tables, kv_heads, head_dim, dim, matrices, pages }
    }
}

/// Returns the elements of a head in the cache, as [`CacheType::row_bytes`] counts them.
pub fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(16)
}

/// Returns the elements of the cache in a 32-bit word.
pub fn elements_per_word(cache_type: CacheType) -> usize {
    match cache_type {
        CacheType::F32 => 1,
        CacheType::F16 => 2,
        CacheType::Q8_0 => 4,
    }
}

/// Appends keys and values to the cache.
#[derive(Debug, Serialize)]
pub struct Append {
    /// Invocations of a workgroup, which appends up to four positions of a head.
    pub workgroup: u32,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// The layer's cache.
    pub cache: PagedCache,
    /// The first word, in the step's buffer, of the `PositionRange`s that are appended.
    pub append_ranges_at: usize,
    /// The keys, `[tokens, kv_heads, head_dim]`.
    pub k: Strided,
    /// The values, `[tokens, kv_heads, head_dim]`.
    pub v: Strided,
    /// The operations on keys before they are appended.
    pub before: Option<KeyRotation>,
}

/// The norm and the rotation of keys.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KeyRotation {
    /// The norm of each key.
    pub norm: Option<Norm>,
    /// The rotation after it.
    pub rotation: Rotation,
    /// The tokens' records.
    pub records: Records,
}

impl Template for Append {
    const NAME: &'static str = "append";

    fn bindings(&self) -> Vec<Binding> {
        let norm = self.before.and_then(|before| before.norm);
        let mut bindings = vec![reads("k", "f32", self.k.rows), reads("v", "f32", self.v.rows)];
        bindings.extend(norm.map(|norm| reads("weight", "f32", norm.weight)));
        bindings.push(writes("cache", "u32", self.cache.pages));
        bindings
    }
}

/// The operations on products of queries and keys before the softmax.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScoreParams {
    /// The factor of a score.
    pub scale: F32,
    /// `scale log2(e)`, for kernels that compute the softmax with powers of two.
    pub log2_scale: F32,
    /// The cap of a scaled score.
    pub soft_cap: Option<SoftCap>,
    /// The limit of the positions that a token sees; `None` for full attention.
    pub window: Option<AttentionWindow>,
}

/// The limit of the positions that a token sees.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AttentionWindow {
    /// Positions that a token sees at most, its own included.
    pub size: usize,
    /// Whether a token sees its chunk of this size, rather than the last positions.
    pub chunked: bool,
}

impl From<Window> for AttentionWindow {
    fn from(window: Window) -> Self {
        Self { size: window.size(), chunked: matches!(window, Window::Chunk(_)) }
    }
}

impl From<crate::graph::Scores> for ScoreParams {
    fn from(scores: crate::graph::Scores) -> Self {
        let crate::graph::Scores { scale, softcap, window, sees: _ } = scores;
        let log2_scale = (f64::from(scale) * std::f64::consts::LOG2_E) as f32;
        let (soft_cap, window) = (softcap.map(SoftCap::from), window.map(AttentionWindow::from));
        Self { scale: F32(scale), log2_scale: F32(log2_scale), soft_cap, window }
    }
}

/// The positions that a token sees, if they do not end with its own.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeenRange {
    /// The first word, in a token's record, of the first position and the end.
    pub at: usize,
    /// Whether the token also sees the positions before, as far as its window reaches.
    pub past: bool,
}

/// Attention of more than 16 tokens over the cache, on any adapter.
#[derive(Debug, Serialize)]
pub struct AttentionPrefill {
    /// Invocations of a workgroup, a multiple of 16.
    pub threads: usize,
    /// Tokens of a workgroup, of one sequence.
    pub block: usize,
    /// The first word, in the step's buffer, of the `PositionRange`s of the blocks.
    pub query_blocks_at: usize,
    /// The layer's cache.
    pub cache: PagedCache,
    /// Query heads.
    pub heads: usize,
    /// The operations on scores.
    pub scores: ScoreParams,
    /// The positions that a token sees; `None` for its own and all before it.
    pub seen_range: Option<SeenRange>,
    /// The tokens' records.
    pub records: Records,
    /// A further score of each head, of a value of 0, if there are sinks.
    pub sinks: Option<BoundBuffer>,
    /// The queries, `[tokens, heads, head_dim]`.
    pub q: Strided,
    /// The result, `[tokens, heads, head_dim]`.
    pub y: Strided,
}

impl Template for AttentionPrefill {
    const NAME: &'static str = "attention_prefill";

    fn bindings(&self) -> Vec<Binding> {
        // Vectors of four elements, if a head is whole vectors.
        let cached = match self.cache.format.0 {
            CacheType::F32 => "vec4<u32>",
            CacheType::F16 => "vec2<u32>",
            CacheType::Q8_0 => "u32",
        };
        let query = if self.cache.head_dim.is_multiple_of(4) { "vec4<f32>" } else { "f32" };
        let mut bindings = vec![
            reads("q", query, self.q.rows),
            reads("kv", cached, self.cache.pages),
            writes("y", "f32", self.y.rows),
        ];
        bindings.extend(self.sinks.map(|sinks| reads("sinks", "f32", sinks.0)));
        bindings
    }
}

/// Attention of more than 16 tokens over a cache of f16, on matrix units.
#[derive(Debug, Serialize)]
pub struct AttentionPrefillCoop {
    /// Tokens of a workgroup, of one sequence: 16 for each subgroup.
    pub block: usize,
    /// Positions that the workgroup attends to at a time.
    pub tile: usize,
    /// Invocations of a subgroup.
    pub subgroup_size: u32,
    /// The first word, in the step's buffer, of the `PositionRange`s of the blocks.
    pub query_blocks_at: usize,
    /// The layer's cache, of f16.
    pub cache: PagedCache,
    /// Query heads.
    pub heads: usize,
    /// The operations on scores.
    pub scores: ScoreParams,
    /// The positions that a token sees; `None` for its own and all before it.
    pub seen_range: Option<SeenRange>,
    /// The tokens' records.
    pub records: Records,
    /// A further score of each head, of a value of 0, if there are sinks.
    pub sinks: Option<BoundBuffer>,
    /// The queries, `[tokens, heads, head_dim]`.
    pub q: Strided,
    /// The result, `[tokens, heads, head_dim]`.
    pub y: Strided,
}

impl Template for AttentionPrefillCoop {
    const NAME: &'static str = "attention_prefill_coop";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![
            reads("q", "vec4<f32>", self.q.rows),
            reads("kv", "vec4<f16>", self.cache.pages),
            writes("y", "vec4<f32>", self.y.rows),
        ];
        bindings.extend(self.sinks.map(|sinks| reads("sinks", "f32", sinks.0)));
        bindings
    }
}
