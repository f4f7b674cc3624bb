//! The gated delta rule in chunks ([Yang et al. 2024](https://arxiv.org/abs/2406.06484)): what the tokens of a chunk do to
//! each other is known before the state is, for all chunks at once, and the state takes a chunk rather than a token at a
//! time.

use serde_json::json;

use super::{Delta, Lowering};
use crate::{
    backend::webgpu::{
        kernel::{Count, Kernel, Resource, reads, writes},
        lower::{slot, with},
        step::CHUNK,
    },
    graph::DeltaSpec,
};

/// Invocations of both kernels: one for each token and two of a workgroup's columns, one for each two tokens and two.
const WORKGROUP: usize = 256;
/// Columns of a state that a workgroup has.
const COLUMNS: usize = 16;
/// Words of a token and head: a row for the state, one for the result, and three factors.
pub(in crate::backend::webgpu) const MIX: usize = 2 * CHUNK + 4;

impl Lowering<'_> {
    /// The kernels for long runs, unless the adapter lacks the memory.
    pub(super) fn chunked(&self, delta: &Delta<'_>) -> Option<[Kernel; 2]> {
        let DeltaSpec { value_heads, head_dim, .. } = *delta.spec;
        let depths = [128, 64, 32, 16].into_iter().filter(|depth| head_dim.is_multiple_of(*depth));
        let depth = depths.into_iter().find(|depth| pass_bytes(head_dim, *depth) <= self.traits.workgroup_bytes)?;
        let mixes = 4 * (self.layout.max_tokens * value_heads * MIX) as u64;
        let fits = mixes <= self.traits.binding_bytes && self.traits.workgroup as usize >= WORKGROUP;
        fits.then(|| [self.chunks(delta), self.pass(delta, depth)])
    }

    fn chunks(&self, delta: &Delta<'_>) -> Kernel {
        let depth = if delta.spec.head_dim.is_multiple_of(32) { 32 } else { 16 };
        Kernel {
            template: "gated_delta_chunks",
            values: with(self.delta(delta), sizes(depth)),
            bindings: vec![
                reads("qkv", "vec4<f32>", slot(&delta.qkv)),
                reads("alpha", "f32", slot(&delta.alpha)),
                reads("beta", "f32", slot(&delta.beta)),
                reads("a", "f32", delta.a),
                reads("dt", "f32", delta.dt),
                writes("mixes", "f32", Resource::Mixes),
            ],
            groups: [Count::Fixed(delta.spec.value_heads), Count::LongChunks, Count::Fixed(1)],
        }
    }

    fn pass(&self, delta: &Delta<'_>, depth: usize) -> Kernel {
        let DeltaSpec { state, value_heads, head_dim, .. } = *delta.spec;
        Kernel {
            template: "gated_delta_pass",
            values: with(with(self.delta(delta), sizes(depth)), json!({ "columns": COLUMNS })),
            bindings: vec![
                reads("qkv", "vec4<f32>", slot(&delta.qkv)),
                reads("mixes", "vec4<f32>", Resource::Mixes),
                writes("states", "vec4<f32>", Resource::State(state)),
                writes("y", "f32", slot(delta.y)),
            ],
            groups: [Count::Fixed(value_heads * head_dim / COLUMNS), Count::LongRuns, Count::Fixed(1)],
        }
    }
}

/// What both kernels are told of their sizes; `depth` elements of keys and queries are in a workgroup's memory at a time.
fn sizes(depth: usize) -> serde_json::Value {
    json!({ "workgroup": WORKGROUP, "chunk": CHUNK, "depth": depth, "mix_words": MIX })
}

/// The memory of a workgroup that takes the state through chunks.
fn pass_bytes(head_dim: usize, depth: usize) -> u32 {
    (4 * (COLUMNS * head_dim + 2 * CHUNK * depth.max(COLUMNS) + 2 * CHUNK * CHUNK)) as u32
}
