//! Lowers the gated delta rule in chunks ([Yang et al. 2024](https://arxiv.org/abs/2406.06484)).
//!
//! The effect of a chunk's tokens on each other does not depend on the state, so a first kernel
//! computes it for all chunks in parallel. A second kernel updates the state chunk by chunk.

use super::GpuLowering;
use crate::{
    backend::webgpu::{
        kernel::{Kernel, Resource, Workgroups},
        kernels::{ChunkShape, Delta, GatedDeltaChunks, GatedDeltaPass},
        step::CHUNK,
    },
    graph::DeltaSpec,
};

/// Invocations of a workgroup. In the second kernel each has two columns of a token; in the first,
/// two tokens by two.
const WORKGROUP: usize = 256;
/// Columns of the state that a workgroup updates.
const COLUMNS: usize = 16;
/// Words of [`Resource::Mixes`] for a token and head: a matrix row for the state, a matrix row for
/// the result, three factors, and padding.
pub(in crate::backend::webgpu) const MIX: usize = 2 * CHUNK + 4;

impl GpuLowering<'_> {
    /// Returns the kernels for long runs, or `None` if the adapter has too little memory.
    pub(super) fn chunked(&self, spec: &DeltaSpec, delta: Delta) -> Option<[Kernel; 2]> {
        let DeltaSpec { value_heads, head_dim, .. } = *spec;
        let depths = [128, 64, 32, 16].into_iter().filter(|depth| head_dim.is_multiple_of(*depth));
        let depth = depths.into_iter().find(|depth| pass_bytes(head_dim, *depth) <= self.traits.workgroup_bytes)?;
        let mixes = 4 * (self.layout.max_tokens * value_heads * MIX) as u64;
        let fits = mixes <= self.traits.binding_bytes && self.traits.workgroup as usize >= WORKGROUP;
        fits.then(|| [self.chunks(spec, delta), self.pass(spec, delta, depth)])
    }

    fn chunks(&self, spec: &DeltaSpec, delta: Delta) -> Kernel {
        let chunk = shape(if spec.head_dim.is_multiple_of(32) { 32 } else { 16 });
        let groups = [Workgroups::Fixed(spec.value_heads), Workgroups::LongChunks, Workgroups::Fixed(1)];
        Kernel::new(GatedDeltaChunks { chunk, delta, runs: self.runs() }, groups)
    }

    fn pass(&self, spec: &DeltaSpec, delta: Delta, depth: usize) -> Kernel {
        let DeltaSpec { state, value_heads, head_dim, .. } = *spec;
        let kernel = GatedDeltaPass {
            chunk: shape(depth),
            columns: COLUMNS,
            delta,
            runs: self.runs(),
            state: self.state_elements(state),
            states: Resource::State(state),
        };
        Kernel::new(
            kernel,
            [Workgroups::Fixed(value_heads * head_dim / COLUMNS), Workgroups::LongRuns, Workgroups::Fixed(1)],
        )
    }
}

/// Returns the sizes of kernels that load `depth` elements of keys and queries into a workgroup's
/// memory at a time.
fn shape(depth: usize) -> ChunkShape {
    ChunkShape { workgroup: WORKGROUP, tokens: CHUNK, depth, mix_words: MIX }
}

/// Returns the bytes of a workgroup's memory in the second kernel.
fn pass_bytes(head_dim: usize, depth: usize) -> u32 {
    (4 * (COLUMNS * head_dim + 2 * CHUNK * depth.max(COLUMNS) + 2 * CHUNK * CHUNK)) as u32
}
