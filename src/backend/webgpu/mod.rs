//! Runs graphs on any GPU through wgpu: Vulkan, DX12 or Metal.
//!
//! A plan is compiled to programs of kernels (`lower`): one for steps of up to 16 tokens, such as
//! decoding, and others for longer steps. A step writes its positions, page tables and runs into
//! one buffer (`step`), and encodes the dispatches of a program with the buffers and bind groups
//! of earlier steps. The kernels are WGSL templates in `kernels/`.

mod adapter;
mod argmax;
mod best;
mod cache;
mod context;
mod executable;
mod hidden;
mod instance;
mod kernel;
mod kernels;
mod lower;
mod parallel;
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
mod warm_up;
mod weight_buffers;

use std::{sync::Arc, thread};

pub use adapter::GpuLimits;

use self::{
    context::{Context, GpuChoices},
    executable::GpuExecutable,
    weight_buffers::WeightBuffers,
};
use super::{Adapter, Backend, Bounds, DeviceInfo, Executable, LoadProgress};
use crate::{
    Error, Result,
    graph::{FusedOp, Graph},
    kv_cache::{CacheLayout, CacheType},
    plan::Plan,
    profile::Profile,
    weights::Weights,
};

/// A device that is a GPU.
pub struct Gpu {
    info: DeviceInfo,
    context: Arc<Context>,
}

impl Gpu {
    /// Opens an adapter.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if this machine has no such adapter, [`Error::Device`] if the driver
    /// cannot open it.
    pub fn new(adapter: &Adapter) -> Result<Self> {
        Self::with_limits(adapter, &GpuLimits::default())
    }

    /// Opens an adapter as [`Gpu::new`] does, and uses at most `limits` of its features: to test
    /// kernels for less capable adapters, or to avoid a feature that a driver gets wrong.
    ///
    /// # Errors
    /// As [`Gpu::new`]; [`Error::Argument`] for limits below the minimum that WebGPU guarantees.
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

    /// Returns whether kernels use matrix units: products of 16 by 16 matrices of f16 with f32
    /// sums.
    pub fn has_matrices(&self) -> bool {
        self.context.traits.matrices
    }

    /// Returns all adapters of this machine. These include software adapters, which
    /// [`Adapter::Best`] does not choose.
    pub fn adapters() -> Vec<DeviceInfo> {
        adapter::all().iter().map(adapter::describe).collect()
    }
}

impl Backend for Gpu {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn set_profile(&mut self, profile: &Profile) {
        self.context = Arc::new(self.context.with_choices(GpuChoices::new(&profile.gpu)));
    }

    fn for_turns(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Self { info: self.info.clone(), context: self.context.clone() }))
    }

    fn supports(&self, op: &FusedOp) -> bool {
        match op {
            FusedOp::MatMulJoined
            | FusedOp::MatMulGlu(_)
            | FusedOp::MatMulAdd
            | FusedOp::AddRmsNorm { .. }
            | FusedOp::MatMulAddRmsNorm { .. }
            | FusedOp::Gated { .. }
            | FusedOp::RotatedAttention { .. } => true,
        }
    }

    fn prefill_chunk(&self) -> usize {
        // Larger steps are faster, but without matrix units they would delay a stop by seconds.
        if self.context.traits.matrices { 1024 } else { 512 }
    }

    fn step_cache_type(&self) -> CacheType {
        if self.context.traits.matrices { CacheType::F16 } else { CacheType::F32 }
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
        compile(&self.context, graph, weights, WeightBuffers::new(), cache, [max_tokens, max_outputs], progress)
    }
}

/// Compiles a graph, with the weights that are not in `weight_buffers` yet.
fn compile(
    context: &Arc<Context>,
    graph: &Graph,
    weights: &Weights,
    weight_buffers: WeightBuffers,
    cache: &CacheLayout,
    [max_tokens, max_outputs]: [usize; 2],
    progress: &LoadProgress<'_>,
) -> Result<Box<dyn Executable>> {
    let cache = Bounds::layout_for(graph, cache)?;
    let plan = Plan::new(graph)?;
    let bounds = Bounds::new(&plan, &cache, max_tokens, max_outputs);
    // Side by side: a self-test mostly waits for the driver's compiler, loading for the disk.
    let (tested, executable) = thread::scope(|scope| {
        let (tested_plan, cache_type) = (plan.clone(), cache.cache_type);
        let test = scope.spawn(move || self_test::run(context, &tested_plan, cache_type));
        let load = || {
            let mut executable = GpuExecutable::new(context.clone(), plan, weights, weight_buffers, cache, bounds)?;
            executable.start_first_kernels();
            executable.upload(weights, progress)?;
            Ok(executable)
        };
        let executable = load();
        (test.join(), executable)
    });
    // Any other error makes callers try another device, which a cancelled load must not do.
    if let Err(Error::Cancelled) = executable {
        return Err(Error::Cancelled);
    }
    tested.map_err(|_| context.error("the self-test's thread failed".into()))??;
    Ok(Box::new(executable?))
}
