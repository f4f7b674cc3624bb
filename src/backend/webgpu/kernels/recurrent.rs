//! Defines the parameters of recurrent ops.

use serde::Serialize;

use super::{BoundBuffer, F32, Strided, Template};
use crate::{
    backend::webgpu::{
        kernel::{Binding, Resource, reads, writes},
        step::{Layout, RUN, RUN_CHECKPOINTS_AT, RUN_CHUNK},
    },
    graph::{DeltaSpec, HeadOrder},
    kv_cache::RUN_CHECKPOINTS,
};

/// The place of the `RunRecord`s and `ChunkRecord`s in the step's buffer, in words.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RunTable {
    /// The first word of the first run.
    runs_at: usize,
    /// Words of a run.
    run_words: usize,
    /// The first word, in a run, of its checkpoints: (tokens before it, state) each.
    checkpoints_at: usize,
    /// Checkpoints of a run.
    checkpoints: usize,
    /// The first word of the first chunk.
    chunks_at: usize,
    /// Words of a chunk.
    chunk_words: usize,
}

impl From<&Layout> for RunTable {
    fn from(layout: &Layout) -> Self {
        Self {
            runs_at: layout.runs_at(),
            run_words: RUN,
            checkpoints_at: RUN_CHECKPOINTS_AT,
            checkpoints: RUN_CHECKPOINTS,
            chunks_at: layout.chunks_at(),
            chunk_words: RUN_CHUNK,
        }
    }
}

/// A short convolution over the tokens of a run, then SiLU if wanted.
#[derive(Debug, Serialize)]
pub struct ShortConv {
    /// Invocations of a workgroup, each of which computes a channel.
    pub workgroup: usize,
    /// Whether a workgroup computes a chunk of a run, rather than a whole run.
    pub chunked: bool,
    /// Number of channels.
    pub channels: usize,
    /// Length of the convolution in tokens, including the result's own token.
    pub taps: usize,
    /// Whether SiLU follows.
    pub silu: bool,
    /// Tokens that an invocation reads ahead.
    pub at_once: usize,
    /// The runs.
    pub runs: RunTable,
    /// Elements of a state, `[taps - 1, channels]`.
    pub state: usize,
    /// The inputs, `[tokens, channels]`.
    pub x: Strided,
    /// The result, `[tokens, channels]`.
    pub y: Strided,
    /// The buffer of the weights, `[channels, taps]`.
    #[serde(skip)]
    pub weights: Resource,
    /// The bias of each channel, if there is one.
    pub bias: Option<BoundBuffer>,
    /// The buffer of the states.
    #[serde(skip)]
    pub states: Resource,
}

impl Template for ShortConv {
    const NAME: &'static str = "short_conv";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![reads("x", "f32", self.x.rows), reads("w", "f32", self.weights)];
        bindings.extend(self.bias.map(|bias| reads("bias", "f32", bias.0)));
        bindings.extend([writes("states", "f32", self.states), writes("y", "f32", self.y.rows)]);
        bindings
    }
}

/// The heads and the operands of a gated delta rule.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Delta {
    /// Number of key heads, and of query heads.
    pub key_heads: usize,
    /// Number of value heads.
    pub value_heads: usize,
    /// The assignment of key heads to value heads.
    pub order: KeyOrder,
    /// Elements of a head of any kind.
    pub head_dim: usize,
    /// The epsilon of the L2 norm of keys and queries.
    pub eps: F32,
    /// Queries, keys and values, `[tokens, 2 key_heads + value_heads, head_dim]`.
    pub qkv: Strided,
    /// Elements from the gates of a token to the gates of the next.
    pub gate_stride: usize,
    /// The result, `[tokens, value_heads, head_dim]`.
    pub y: Strided,
    /// The buffer of the gates of the decay, `[tokens, value_heads]`.
    #[serde(skip)]
    pub alpha: Resource,
    /// The buffer of the gates of the update's strength, `[tokens, value_heads]`.
    #[serde(skip)]
    pub beta: Resource,
    /// The buffer of the factors of the decay, `[value_heads]`.
    #[serde(skip)]
    pub a: Resource,
    /// The buffer of the bias of `alpha`, `[value_heads]`.
    #[serde(skip)]
    pub dt: Resource,
}

/// The key head that a value head reads.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrder {
    /// Value head `h` reads key head `h mod key_heads`.
    Tiled,
    /// Value head `h` reads key head `h / (value_heads / key_heads)`.
    Grouped,
}

impl From<HeadOrder> for KeyOrder {
    fn from(order: HeadOrder) -> Self {
        match order {
            HeadOrder::Tiled => Self::Tiled,
            HeadOrder::Grouped => Self::Grouped,
        }
    }
}

impl Delta {
    /// Returns the parameters of a rule. `gates` are `alpha` and `beta`.
    pub fn new(spec: &DeltaSpec, qkv: Strided, gates: [Strided; 2], [a, dt]: [Resource; 2], y: Strided) -> Self {
        let DeltaSpec { key_heads, value_heads, order, head_dim, eps, .. } = *spec;
        let [alpha, beta] = gates.map(|gate| gate.rows);
        let gate_stride = gates[0].stride;
        let (order, eps) = (order.into(), F32(eps));
        Self { key_heads, value_heads, order, head_dim, eps, qkv, gate_stride, y, alpha, beta, a, dt }
    }

    /// Returns the bindings of the operands.
    fn operands(&self) -> Vec<Binding> {
        vec![
            reads("qkv", "vec4<f32>", self.qkv.rows),
            reads("alpha", "f32", self.alpha),
            reads("beta", "f32", self.beta),
            reads("a", "f32", self.a),
            reads("dt", "f32", self.dt),
        ]
    }
}

/// The gated delta rule, token by token.
#[derive(Debug, Serialize)]
pub struct GatedDeltaKernel {
    /// Invocations of a workgroup.
    pub workgroup: usize,
    /// Invocations that share a column of the state.
    pub lanes: usize,
    /// Whether this kernel skips the long runs, which come first.
    pub after_long: bool,
    /// Whether the invocations of a column are in one subgroup, whose operations they use.
    pub shuffles: bool,
    /// The rule.
    pub delta: Delta,
    /// The runs.
    pub runs: RunTable,
    /// Elements of a state, `[value_heads, head_dim, head_dim]`.
    pub state: usize,
    /// The buffer of the states.
    #[serde(skip)]
    pub states: Resource,
}

impl Template for GatedDeltaKernel {
    const NAME: &'static str = "gated_delta";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = self.delta.operands();
        bindings.extend([writes("states", "vec4<f32>", self.states), writes("y", "f32", self.delta.y.rows)]);
        bindings
    }
}

/// The sizes of a gated delta rule in chunks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ChunkShape {
    /// Invocations of a workgroup.
    pub workgroup: usize,
    /// Largest number of tokens in a chunk.
    pub tokens: usize,
    /// Elements of a head's keys and queries that are in a workgroup's memory at a time.
    pub depth: usize,
    /// Words of a token and head in `mixes`.
    pub mix_words: usize,
}

/// Computes, for all chunks, the matrices with which the tokens of a chunk affect each other.
#[derive(Debug, Serialize)]
pub struct GatedDeltaChunks {
    /// The sizes.
    pub chunk: ChunkShape,
    /// The rule.
    pub delta: Delta,
    /// The runs.
    pub runs: RunTable,
}

impl Template for GatedDeltaChunks {
    const NAME: &'static str = "gated_delta_chunks";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = self.delta.operands();
        bindings.push(writes("mixes", "f32", Resource::Mixes));
        bindings
    }
}

/// Updates the state chunk by chunk, and computes the results.
#[derive(Debug, Serialize)]
pub struct GatedDeltaPass {
    /// The sizes.
    pub chunk: ChunkShape,
    /// Columns of the state that a workgroup updates.
    pub columns: usize,
    /// The rule.
    pub delta: Delta,
    /// The runs.
    pub runs: RunTable,
    /// Elements of a state, `[value_heads, head_dim, head_dim]`.
    pub state: usize,
    /// The buffer of the states.
    #[serde(skip)]
    pub states: Resource,
}

impl Template for GatedDeltaPass {
    const NAME: &'static str = "gated_delta_pass";

    fn bindings(&self) -> Vec<Binding> {
        vec![
            reads("qkv", "vec4<f32>", self.delta.qkv.rows),
            reads("mixes", "vec4<f32>", Resource::Mixes),
            writes("states", "vec4<f32>", self.states),
            writes("y", "f32", self.delta.y.rows),
        ]
    }
}
