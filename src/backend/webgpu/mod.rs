//! Any GPU, through wgpu: Vulkan, DX12 or Metal.
//!
//! In: an optimised graph and the weights. Out: logits. A plan becomes two programs of kernels (`lower`), one for steps
//! of few tokens and one for many; a step writes what changes into one buffer (`step`), and encodes the dispatches
//! that it needs over buffers and bindings that were made once. The kernels are templates in `kernels/`.

mod adapter;
mod arena;
mod best;
mod cache;
mod chosen;
mod context;
mod executable;
mod instance;
mod kernel;
mod kernels;
mod lower;
mod prepare;
mod profile;
mod program;
mod self_test;
mod step;
mod templates;
#[cfg(test)]
mod test_adapters;
#[cfg(all(test, feature = "_kernel-tests"))]
mod tests;
mod tiles;

use std::{sync::Arc, thread};

pub use adapter::GpuLimits;

use self::{context::Context, executable::GpuExecutable};
use super::{Adapter, Backend, Bounds, DeviceInfo, Executable, LoadProgress};
use crate::{
    Error, Result,
    graph::{FusedOp, Graph},
    kv_cache::CacheLayout,
    plan::Plan,
    weights::Weights,
};

/// A GPU as a device.
pub struct Gpu {
    info: DeviceInfo,
    context: Arc<Context>,
}

impl Gpu {
    /// Opens an adapter.
    ///
    /// # Errors
    /// [`Error::NoDevice`] where there is none such, [`Error::Device`] where it cannot be opened.
    pub fn new(adapter: &Adapter) -> Result<Self> {
        Self::with_limits(adapter, &GpuLimits::default())
    }

    /// As [`Gpu::new`], with less than the adapter has: to see what kernels come to on other adapters, or to do without
    /// what a driver gets wrong.
    ///
    /// # Errors
    /// As there; [`Error::Argument`] for limits below what WebGPU grants everywhere.
    pub fn with_limits(adapter: &Adapter, limits: &GpuLimits) -> Result<Self> {
        limits.check()?;
        let adapter = adapter::find(adapter)?;
        let mut info = adapter::describe(&adapter);
        let context = Arc::new(adapter::open(&adapter, limits)?);
        if context.traits.matrices {
            info.details.push_str(", matrix units");
        }
        Ok(Self { info, context })
    }

    /// Whether it has matrix units that kernels use: of 16 by 16 in half precision, summed in single.
    pub fn has_matrices(&self) -> bool {
        self.context.traits.matrices
    }

    /// All adapters of this machine, software among them, which [`Adapter::Best`] does not choose.
    pub fn adapters() -> Vec<DeviceInfo> {
        adapter::all().iter().map(adapter::describe).collect()
    }
}

impl Backend for Gpu {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, op: &FusedOp) -> bool {
        match op {
            FusedOp::MatMulJoined
            | FusedOp::MatMulGlu(_)
            | FusedOp::MatMulAdd
            | FusedOp::AddRmsNorm { .. }
            | FusedOp::MatMulAddRmsNorm { .. }
            | FusedOp::RotatedAttention { .. } => true,
        }
    }

    fn prefill_chunk(&self) -> usize {
        512
    }

    fn scratch_bytes(&self, plan: &Plan, max_tokens: usize, max_outputs: usize, max_positions: usize) -> usize {
        prepare::scratch_bytes(plan, max_tokens, max_outputs, max_positions)
    }

    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        cache: &CacheLayout,
        max_tokens: usize,
        max_outputs: usize,
    ) -> Result<Box<dyn Executable>> {
        self.compile_with_progress(graph, weights, cache, max_tokens, max_outputs, &LoadProgress::unobserved())
    }

    fn compile_with_progress(
        &self,
        graph: &Graph,
        weights: &Weights,
        cache: &CacheLayout,
        max_tokens: usize,
        max_outputs: usize,
        progress: &LoadProgress<'_>,
    ) -> Result<Box<dyn Executable>> {
        let cache = Bounds::layout_for(graph, cache)?;
        let plan = Plan::new(graph)?;
        let bounds = Bounds::new(&plan, &cache, max_tokens, max_outputs);
        // Most of a self-test is the driver's compiler, most of loading the way of the weights.
        let (tested, executable) = thread::scope(|scope| {
            let (tested_plan, cache_type) = (plan.clone(), cache.cache_type);
            let test = scope.spawn(move || self_test::run(&self.context, &tested_plan, cache_type));
            let executable = GpuExecutable::new(self.context.clone(), plan, weights, cache, bounds, progress);
            (test.join(), executable)
        });
        // A caller who cancels is not to be sent to another device.
        if let Err(Error::Cancelled) = executable {
            return Err(Error::Cancelled);
        }
        tested.map_err(|_| self.context.error("the self-test's thread failed".into()))??;
        Ok(Box::new(executable?))
    }
}
