//! Compiles graphs for devices and runs them.
//!
//! A [`Backend`] is a kind of device. It compiles an optimized graph and its weights to an
//! [`Executable`], which computes logits step by step. A step is a ragged batch, so prefill,
//! decode, speculative verification and several users at once are the same call.

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
mod check;
#[cfg(feature = "cpu")]
pub mod cpu;
mod device;
mod executable;
mod fallback;
mod progress;
mod step;
#[cfg(any(feature = "wgpu", feature = "metal"))]
pub mod webgpu;

use std::sync::Arc;

pub use device::{Adapter, Device, DeviceInfo};
pub(crate) use executable::MAX_TOP_LOGITS;
pub use executable::{
    CacheAccess, ChosenTokens, Executable, NextToken, OpTime, Pipelined, StepProgress, TokenLogit, TopLogits, Usage,
};
pub(crate) use fallback::Fallback;
pub use progress::{LoadProgress, ProgressCallback};
pub use step::{InputRows, Run, Step, Taps};

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
use self::check::Bounds;
use crate::{
    Result,
    graph::{FusedOp, Graph},
    kv_cache::{CacheLayout, CacheType},
    plan::Plan,
    profile::Profile,
    weights::Weights,
};

/// A kind of device that runs graphs.
pub trait Backend: Send + Sync {
    /// Describes the device.
    fn device(&self) -> &DeviceInfo;

    /// Makes the choices of a valid profile for graphs that are compiled later. Choices that do not
    /// concern the device have no effect.
    fn set_profile(&mut self, profile: &Profile);

    /// Returns the same device for several graphs that run in turn, and so share their threads.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the system refuses to start a thread.
    fn for_turns(&self) -> Result<Box<dyn Backend>>;

    /// Returns whether the device has a kernel for a fused op. Every backend has all plain ops.
    fn supports(&self, op: &FusedOp) -> bool;

    /// Returns the number of tokens of a prompt that a step computes most efficiently.
    fn prefill_chunk(&self) -> usize;

    /// Returns the format of keys and values that serve a single step, as in vision encoders: the
    /// one that the device attends to fastest. The default is f32.
    fn step_cache_type(&self) -> CacheType {
        CacheType::F32
    }

    /// Returns the bytes of memory, besides weights and cache, for steps of up to `max_tokens`
    /// tokens and `max_outputs` outputs, whose runs end at positions that add up to `max_positions`
    /// at most.
    fn scratch_bytes(&self, plan: &Plan, max_tokens: usize, max_outputs: usize, max_positions: usize) -> usize;

    /// Returns the names of the tensors that steps read where the weights have them: in a mapped
    /// file, unless they were copied. All other tensors are copied when a graph is compiled.
    fn reads_in_place(&self, plan: &Plan) -> Vec<Arc<str>> {
        let _ = plan;
        vec![]
    }

    /// Compiles a graph. `max_tokens` and `max_outputs` bound every later step.
    ///
    /// # Errors
    /// - [`Error::Tensor`](crate::Error::Tensor) if a weight is missing or not as the graph says.
    /// - [`Error::Argument`](crate::Error::Argument) if the cache is laid out for other layers than
    ///   the graph's.
    /// - Another error if the memory is refused or the device fails.
    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        cache: &CacheLayout,
        max_tokens: usize,
        max_outputs: usize,
    ) -> Result<Box<dyn Executable>>;

    /// Compiles a graph as [`compile`](Self::compile) does, and counts the weights in `progress` as
    /// they become ready. The default implementation counts none.
    ///
    /// # Errors
    /// As [`compile`](Self::compile); [`Error::Cancelled`](crate::Error::Cancelled) if the callback
    /// of `progress` cancels.
    fn compile_with_progress(
        &self,
        graph: &Graph,
        weights: &Weights,
        cache: &CacheLayout,
        max_tokens: usize,
        max_outputs: usize,
        progress: &LoadProgress<'_>,
    ) -> Result<Box<dyn Executable>> {
        progress.check()?;
        self.compile(graph, weights, cache, max_tokens, max_outputs)
    }
}

impl Device {
    /// Returns the machine's GPUs, the ones in software included; none in builds without the
    /// feature `wgpu` or `metal`. [`Adapter::Named`] selects one of them by its name.
    ///
    /// ```
    /// for gpu in inkstone::Device::gpus() {
    ///     println!("{}: {}", gpu.name, gpu.details);
    /// }
    /// ```
    pub fn gpus() -> Vec<DeviceInfo> {
        #[cfg(any(feature = "wgpu", feature = "metal"))]
        return webgpu::Gpu::adapters();
        #[cfg(not(any(feature = "wgpu", feature = "metal")))]
        vec![]
    }
}
