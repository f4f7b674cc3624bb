//! Names the reason why a model runs on another device than a GPU.

use std::sync::Arc;

use super::{Backend, DeviceInfo, Executable, LoadProgress};
use crate::{
    Result,
    graph::{FusedOp, Graph},
    kv_cache::{CacheLayout, CacheType},
    plan::Plan,
    profile::Profile,
    weights::Weights,
};

/// A backend that is used in place of a GPU, with the reason in its [`DeviceInfo`].
pub(crate) struct Fallback {
    backend: Box<dyn Backend>,
    info: DeviceInfo,
}

impl Fallback {
    pub(crate) fn new(backend: Box<dyn Backend>, reason: String) -> Self {
        let info = DeviceInfo { fallback: Some(reason), ..backend.device().clone() };
        Self { backend, info }
    }
}

impl Backend for Fallback {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn set_profile(&mut self, profile: &Profile) {
        self.backend.set_profile(profile);
        self.info.threads = self.backend.device().threads;
    }

    fn for_turns(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Self { backend: self.backend.for_turns()?, info: self.info.clone() }))
    }

    fn supports(&self, op: &FusedOp) -> bool {
        self.backend.supports(op)
    }

    fn prefill_chunk(&self) -> usize {
        self.backend.prefill_chunk()
    }

    fn step_cache_type(&self) -> CacheType {
        self.backend.step_cache_type()
    }

    fn scratch_bytes(&self, plan: &Plan, max_tokens: usize, max_outputs: usize, max_positions: usize) -> usize {
        self.backend.scratch_bytes(plan, max_tokens, max_outputs, max_positions)
    }

    fn reads_in_place(&self, plan: &Plan) -> Vec<Arc<str>> {
        self.backend.reads_in_place(plan)
    }

    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        cache: &CacheLayout,
        max_tokens: usize,
        max_outputs: usize,
    ) -> Result<Box<dyn Executable>> {
        self.backend.compile(graph, weights, cache, max_tokens, max_outputs)
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
        self.backend.compile_with_progress(graph, weights, cache, max_tokens, max_outputs, progress)
    }
}
