//! Plans a vision encoder for a device, before memory is allocated for it.

use super::VisionEncoder;
use crate::{
    Result,
    backend::{Backend, LoadProgress},
    graph::Graph,
    kv_cache::{CacheLayout, KvCache, PAGE_POSITIONS},
    models::vision::{VisionConfig, VisionModel},
    optimize::{Target, optimize},
    plan::Plan,
    weights::Weights,
};

/// The number of patches up to which several pictures are encoded in one step.
pub(super) const BATCH_PATCHES: usize = 4096;

/// A vision encoder whose graph is optimized for a device.
pub struct EncoderPlan {
    config: VisionConfig,
    graph: Graph,
    weights: Weights,
    layout: CacheLayout,
    /// The largest number of patches of a step.
    max_patches: usize,
}

/// The memory of a vision encoder, in bytes.
pub struct EncoderMemory {
    /// Size of the tensors as they are stored.
    pub weights: u64,
    /// Size of the tensors that are read from the mapped file, which `weights` includes.
    pub mapped: u64,
    /// Working memory of the largest step, with its keys and values.
    pub scratch: u64,
}

impl EncoderPlan {
    /// Plans an encoder for pictures of up to `max_patches` patches.
    ///
    /// # Errors
    /// As [`optimize`] and [`CacheLayout::new`].
    pub fn new(model: VisionModel, backend: &dyn Backend, max_patches: usize) -> Result<Self> {
        let VisionModel { config, graph, weights } = model;
        let target = Target {
            supports: &|op| backend.supports(op),
            vector: &|slice, width| weights.vector(slice, width).ok().map(Into::into),
        };
        let graph = optimize(&graph, &target)?.graph;
        let layout = CacheLayout::new(&graph, backend.step_cache_type())?;
        Ok(Self { config, graph, weights, layout, max_patches: max_patches.max(BATCH_PATCHES) })
    }

    /// Returns the sizes of the encoder.
    pub fn config(&self) -> &VisionConfig {
        &self.config
    }

    /// Returns the memory that the encoder takes on the device.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn memory(&self, backend: &dyn Backend) -> Result<EncoderMemory> {
        let plan = Plan::new(&self.graph)?;
        let cache = self.max_patches.next_multiple_of(PAGE_POSITIONS) * self.layout.bytes_per_token();
        let scratch = backend.scratch_bytes(&plan, self.max_patches, self.max_outputs(), self.max_patches);
        Ok(EncoderMemory {
            weights: self.weights.total_bytes(),
            mapped: self.weights.mapped_bytes(backend.reads_in_place(&plan).iter().map(|name| &**name)),
            scratch: (cache + scratch) as u64,
        })
    }

    /// Compiles the encoder, and counts its weights in `progress`.
    ///
    /// # Errors
    /// As [`Backend::compile_with_progress`].
    pub fn compile(self, backend: &dyn Backend, progress: &LoadProgress<'_>) -> Result<VisionEncoder> {
        let max_outputs = self.max_outputs();
        let Self { config, graph, weights, layout, max_patches } = self;
        let executable =
            backend.compile_with_progress(&graph, &weights, &layout, max_patches, max_outputs, progress)?;
        Ok(VisionEncoder::from_parts(config, executable, max_patches, KvCache::new(&layout, max_patches)))
    }

    fn max_outputs(&self) -> usize {
        self.max_patches / self.config.block.pow(2)
    }
}
