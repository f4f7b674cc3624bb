//! Runs graphs on the CPU, with a pool of persistent threads and the machine's fastest instruction
//! set.
//!
//! Compiling a graph interleaves its quantized matrices once (`quant` has the formats).
//! Products read them packed, with int8 activations. Float matrices, and an embedding table that is
//! not also a quantized output matrix, are read where the weights have them; only these stay
//! mapped.
//!
//! Each of these layers uses only the ones before it: `memory`, `threads`, `weights`,
//! `kernels` and `program`.

mod kernels;
mod memory;
mod program;
mod threads;
mod weights;

use std::{
    fs,
    sync::{Arc, Mutex},
    thread,
};

use self::{
    kernels::Kernels,
    program::{
        executable::CpuExecutable,
        memory::{StepSize, scratch_bytes},
    },
    threads::pool::Pool,
};
use super::{Backend, Device, DeviceInfo, Executable, LoadProgress};
use crate::{
    Error, Result,
    graph::{FusedOp, Graph},
    kv_cache::CacheLayout,
    plan::Plan,
    profile::Profile,
    weights::Weights,
};

/// The CPU backend.
pub struct Cpu {
    info: DeviceInfo,
    /// Number of threads in steps of up to 16 tokens, if it is less than in others.
    decode_threads: Option<usize>,
    kernels: &'static Kernels,
    /// The threads of all graphs, if these run in turn.
    pool: Option<Arc<Mutex<Pool>>>,
}

impl Cpu {
    /// Returns the backend with `threads` threads; `None` means one for each physical core that the
    /// process may use.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `threads` is from 1 to 1024.
    pub fn new(threads: Option<usize>) -> Result<Self> {
        let instruction_sets = Self::instruction_sets();
        Self::with_instruction_set(threads, instruction_sets.first().copied().unwrap_or("portable"))
    }

    /// Returns the names of the instruction sets that this machine supports, the fastest first.
    pub fn instruction_sets() -> Vec<&'static str> {
        kernels::detect().iter().map(|kernels| kernels.name).collect()
    }

    /// Returns the backend with the kernels of one of [`Cpu::instruction_sets`], rather than the
    /// fastest.
    ///
    /// # Errors
    /// [`Error::Argument`] as [`Cpu::new`], and for an instruction set that the machine lacks.
    pub fn with_instruction_set(threads: Option<usize>, name: &str) -> Result<Self> {
        let threads = threads.unwrap_or_else(physical_cores);
        Device::check_threads(threads)?;
        let kernels = kernels::detect().into_iter().find(|kernels| kernels.name == name).ok_or_else(|| {
            let known = Self::instruction_sets().join(", ");
            Error::argument("instruction set", format!("{name} is not one of this machine's: {known}"))
        })?;
        let info = DeviceInfo {
            name: "CPU".into(),
            details: kernels.name.into(),
            threads,
            memory: None,
            fallback: None,
            profile: None,
        };
        Ok(Self { info, decode_threads: None, kernels, pool: None })
    }

    /// Returns the threads for a graph.
    fn pool(&self) -> Result<Arc<Mutex<Pool>>> {
        if let Some(pool) = &self.pool {
            return Ok(pool.clone());
        }
        let pool = Pool::new(self.info.threads)?;
        let pool = match self.decode_threads {
            Some(threads) => pool.with_small_threads(threads),
            None => pool,
        };
        Ok(Arc::new(Mutex::new(pool)))
    }
}

impl Backend for Cpu {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn set_profile(&mut self, profile: &Profile) {
        self.info.threads = profile.threads.unwrap_or(self.info.threads);
        self.decode_threads = profile.decode_threads;
    }

    fn for_turns(&self) -> Result<Box<dyn Backend>> {
        let Self { ref info, decode_threads, kernels, .. } = *self;
        Ok(Box::new(Self { info: info.clone(), decode_threads, kernels, pool: Some(self.pool()?) }))
    }

    fn supports(&self, op: &FusedOp) -> bool {
        match op {
            FusedOp::MatMulJoined | FusedOp::MatMulGlu(_) | FusedOp::MatMulAdd | FusedOp::AddRmsNorm { .. } => true,
            // These save a barrier, which costs less than the fused kernels would.
            FusedOp::MatMulAddRmsNorm { .. } | FusedOp::RotatedAttention { .. } | FusedOp::Gated { .. } => false,
        }
    }

    fn prefill_chunk(&self) -> usize {
        256
    }

    fn scratch_bytes(&self, plan: &Plan, max_tokens: usize, max_outputs: usize, max_positions: usize) -> usize {
        let widest = weights::prepare::widest_quantized(plan);
        let size = StepSize { tokens: max_tokens, outputs: max_outputs };
        scratch_bytes(plan, widest, self.info.threads, size, max_positions)
    }

    fn reads_in_place(&self, plan: &Plan) -> Vec<Arc<str>> {
        weights::prepare::read_in_place(plan)
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
        let limits = StepSize { tokens: max_tokens, outputs: max_outputs };
        let device = (self.kernels, self.pool()?);
        Ok(Box::new(CpuExecutable::new(graph, weights, None, cache, limits, device, progress)?))
    }
}

/// Returns the number of physical cores that the process may use. A second thread of a core would
/// compete for the same arithmetic units.
fn physical_cores() -> usize {
    let logical = thread::available_parallelism().map_or(1, usize::from);
    // The logical processors of the core that each processor belongs to.
    let siblings = |cpu: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        fs::read_to_string(path).ok()
    };
    let mut cores: Vec<_> = (0..).map_while(siblings).collect();
    let all = cores.len();
    cores.sort();
    cores.dedup();
    match all.checked_div(cores.len()) {
        Some(threads_per_core) if threads_per_core > 0 => logical.div_ceil(threads_per_core),
        _ => logical,
    }
}
