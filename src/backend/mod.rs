//! What runs a graph: one trait for the device and one for a graph made ready on it.
//!
//! In: an optimised graph and the weights. Out: logits, step by step. A step is a ragged batch, so prefill, decode,
//! speculative verification and several users at once are the same call.

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
mod check;
#[cfg(feature = "cpu")]
pub mod cpu;
mod progress;
#[cfg(any(feature = "wgpu", feature = "metal"))]
pub mod webgpu;

use std::{convert::Infallible, str::FromStr, sync::Arc, time::Duration};

pub use progress::{LoadProgress, ProgressCallback};

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
use self::check::Bounds;
use crate::{
    Error, Result,
    graph::{FusedOp, Graph},
    kv_cache::{CacheLayout, PageId, PageTable, StateUpdate},
    plan::Plan,
    weights::Weights,
};

/// Consecutive tokens of one sequence within a step.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// How many of the step's tokens; runs follow one another in the step's order.
    pub len: usize,
    /// The position of the first in its sequence.
    pub start: usize,
    /// The sequence's pages, a table for each group of layers, with room for `start + len` positions.
    pub pages: &'a [PageTable],
    /// What it does with the state of its sequence, where the graph has recurrent ops. Another run of the step neither
    /// reads nor writes a state that this one writes.
    pub state: Option<&'a StateUpdate>,
}

/// One ragged batch.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The token ids of all runs, one after the other.
    pub tokens: &'a [u32],
    /// The runs; their lengths add up to the number of tokens, and no two write the same position of a page.
    pub runs: &'a [Run<'a>],
    /// Which tokens' logits are wanted, as indices into `tokens`, each once, ascending.
    pub outputs: &'a [usize],
    /// Pages to copy, in order, before anything is written.
    pub copies: &'a [(PageId, PageId)],
}

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
impl Run<'_> {
    /// How many positions its tokens see together through a window.
    fn sees(&self, window: Option<usize>) -> usize {
        (self.start + self.len)
            .min(window.map_or(usize::MAX, |window| window.saturating_add(self.len.saturating_sub(1))))
    }
}

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
impl Step<'_> {
    /// How many pages of a group there must be for those that the step names.
    fn page_count(&self, group: usize) -> usize {
        let in_runs = self.runs.iter().filter_map(|run| run.pages.get(group)).flat_map(PageTable::pages);
        let in_copies = self.copies.iter().flat_map(|(from, to)| [*from, *to]).filter(|page| page.group() == group);
        in_runs.chain(in_copies).map(|page| page.index() + 1).max().unwrap_or(0)
    }
}

/// Where a model runs.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// What computes: instruction set, or adapter and driver.
    pub details: String,
    /// CPU threads that work on a step.
    pub threads: usize,
    /// Bytes of a GPU's own memory, where its driver says so.
    pub memory: Option<u64>,
    /// Why a GPU was not used, where one was looked for.
    pub fallback: Option<String>,
}

/// Where a model is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The best GPU where this build looks for one (feature `wgpu` or `metal`) and the model runs there; else the CPU,
    /// and [`DeviceInfo::fallback`] says why.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, or an error.
    Gpu(Adapter),
}

/// Which of a machine's GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Adapter {
    /// The fastest kind that there is: a GPU of its own before one that shares the processor's memory. Software that
    /// poses as a GPU is never chosen.
    #[default]
    Best,
    /// The first whose name contains this, in any case; software too.
    Named(String),
}

/// `auto`, `cpu`, `gpu`, or a part of a GPU's name.
impl FromStr for Device {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "cpu" => Self::Cpu,
            "gpu" => Self::Gpu(Adapter::Best),
            name => Self::Gpu(Adapter::Named(name.into())),
        })
    }
}

/// Where a device spent time in steps: in all calls of one op, or in something else that steps need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTime {
    /// The op's name, as in dumps of a [`Graph`]; or the device's own name for something else, such as `wait`.
    pub op: &'static str,
    /// How often it ran.
    pub calls: u64,
    /// How long it took, all calls together.
    pub time: Duration,
    /// The bytes of weights or of the cache that all calls together had to read, each byte once a call; 0 where reading
    /// them is not what takes the time. Over `time` it is the rate of all threads together.
    pub bytes: u64,
}

/// A kind of device that runs graphs.
pub trait Backend: Send + Sync {
    /// The device.
    fn device(&self) -> &DeviceInfo;

    /// Returns whether the device has a kernel for a fused op. Every backend has all plain ops.
    fn supports(&self, op: &FusedOp) -> bool;

    /// How many tokens of a prompt are best computed at once.
    fn prefill_chunk(&self) -> usize;

    /// The bytes that steps of up to `max_tokens` tokens and `max_outputs` outputs work in, besides weights and cache,
    /// where their runs end at up to `max_positions` positions together.
    fn scratch_bytes(&self, plan: &Plan, max_tokens: usize, max_outputs: usize, max_positions: usize) -> usize;

    /// Returns the names of the tensors that steps read where the weights have them, which is in a mapped file unless
    /// they were copied. The others are copied when a graph is compiled.
    fn reads_in_place(&self, plan: &Plan) -> Vec<Arc<str>> {
        let _ = plan;
        vec![]
    }

    /// Makes a graph ready to run. `max_tokens` and `max_outputs` bound every later step.
    ///
    /// # Errors
    /// Where a weight is missing or other than the graph says, the cache is laid out for other layers than the graph's,
    /// or memory is out.
    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        cache: &CacheLayout,
        max_tokens: usize,
        max_outputs: usize,
    ) -> Result<Box<dyn Executable>>;

    /// As [`compile`](Self::compile), counting the weights in `progress` as they become ready.
    /// Unless a backend says otherwise it counts none of them before the end.
    ///
    /// # Errors
    /// As there; [`Error::Cancelled`] where the caller of `progress` says so.
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

/// A graph made ready on a device, with the memory that its cache pages live in.
pub trait Executable: Send {
    /// Runs one step and returns the wanted logits, `[outputs, vocabulary]`, row by row.
    ///
    /// # Errors
    /// [`Error::Argument`] where the step breaks a rule of [`Step`] or does not fit what was
    /// compiled; nothing has been run or copied then. Others where the device fails.
    fn run(&mut self, step: &Step<'_>) -> Result<&[f32]>;

    /// Runs a step with one output and returns the `count` largest of its logits, best first and of equal ones the lower
    /// id, where the device finds so many itself. One that is not a number comes before all others. `None` where it does
    /// not: nothing has been run then.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn best(&mut self, step: &Step<'_>, count: usize) -> Result<Option<&[TokenLogit]>> {
        let _ = (step, count);
        Ok(None)
    }

    /// The most probable tokens, step after step without a wait between them, where the device can do that.
    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        None
    }

    /// Says whether several threads use it at once, each waiting for its turn; at first one alone does. Their own work
    /// then takes cores between the steps.
    fn set_shared(&mut self, shared: bool) {
        let _ = shared;
    }

    /// What it has done and what it holds.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Whether steps take note of where their time goes, which costs a little; they do not at first. What was noted
    /// before is forgotten.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the device cannot time its ops.
    fn set_profiling(&mut self, on: bool) -> Result<()> {
        if !on {
            return Ok(());
        }
        Err(Error::Unsupported("this device does not time its ops: measure whole steps, or use the CPU".into()))
    }

    /// Takes what the steps since the last call have noted, the longest first; nothing where profiling is off. The times
    /// add up to those that [`run`](Self::run) took.
    fn take_profile(&mut self) -> Vec<OpTime> {
        Vec::new()
    }
}

/// A token of the vocabulary, and its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogit {
    /// The token.
    pub id: u32,
    /// Its logit.
    pub logit: f32,
}

/// Steps of one token each, whose most probable followers are all that is wanted.
pub trait Ahead {
    /// Starts a step of this run and does not wait for it. Its token is `token`, or the one that the step started last will
    /// come to; `copies` as in [`Step`].
    ///
    /// # Errors
    /// As [`Executable::run`].
    fn start(&mut self, token: Option<u32>, run: Run<'_>, copies: &[(PageId, PageId)]) -> Result<()>;

    /// The most probable token after the earliest step that has been started and not been taken; the lowest id among
    /// equals, none where some logit is not a number.
    ///
    /// # Errors
    /// [`Error::Argument`] where none has been started. Others where the device fails.
    fn take(&mut self) -> Result<Option<u32>>;
}

/// What an executable has done and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Kernels started by the last step; 0 on a CPU.
    pub dispatches: u64,
    /// How long the host took to hand them over; nothing on a CPU.
    pub encoding: Duration,
    /// Bytes on the device, apart from the host's memory.
    pub device_bytes: u64,
}

/// A backend that stands in for a GPU, and says why.
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

    fn supports(&self, op: &FusedOp) -> bool {
        self.backend.supports(op)
    }

    fn prefill_chunk(&self) -> usize {
        self.backend.prefill_chunk()
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
