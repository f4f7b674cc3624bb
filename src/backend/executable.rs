//! Runs compiled graphs: the interface to a device's steps, its choices of tokens, and its cache.

use std::time::Duration;

use super::{LoadProgress, Run, Step};
use crate::{
    Error, Result,
    graph::Graph,
    kv_cache::{CacheLayout, CachePart, PageId},
    weights::Weights,
};

/// A callback for the progress of a step: the number of finished tasks and of all. It stops the
/// step by returning false.
pub type StepProgress<'a> = dyn FnMut(usize, usize) -> bool + 'a;

/// A graph that is compiled for a device, with the memory of its cache.
pub trait Executable: Send {
    /// Runs a step and returns the logits of its outputs, `[outputs, vocabulary]`, row-major.
    ///
    /// # Errors
    /// [`Error::Argument`] if the step breaks a rule of [`Step`] or exceeds the bounds of the
    /// compilation: the step has not run then, and no page has been copied. Another error if the
    /// device fails.
    fn run(&mut self, step: &Step<'_>) -> Result<&[f32]>;

    /// Runs a step like [`run`](Self::run), calls `progress` on this thread while it runs, and
    /// `read` with the logits where they lie. Returns false if `progress` returns false; the
    /// outputs are then lost, and the cache has arbitrary elements in the positions that the step
    /// writes. The default implementation calls `progress` once, before the step.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn run_with_progress(
        &mut self,
        step: &Step<'_>,
        progress: &mut StepProgress<'_>,
        read: &mut dyn FnMut(&[f32]),
    ) -> Result<bool> {
        let runs = progress(0, 1);
        if runs {
            read(self.run(step)?);
        }
        Ok(runs)
    }

    /// Runs a step and returns the `count` largest logits of each output. Returns `None`, without
    /// running the step, if the device cannot find that many itself.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn best(&mut self, step: &Step<'_>, count: usize) -> Result<Option<&[TopLogits]>> {
        let _ = (step, count);
        Ok(None)
    }

    /// Runs a step and returns the most probable token after each output, the lowest id of equal
    /// logits, or `None` after an output of which a logit is NaN. Returns no list, without running
    /// the step, if the device does not choose tokens.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn most_probable(&mut self, step: &Step<'_>) -> Result<Option<Vec<Option<u32>>>> {
        let _ = step;
        Ok(None)
    }

    /// Returns all logits of an output of the last step, which [`best`](Self::best) has run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device does not find the largest logits. Another error if the
    /// device fails.
    fn logits_of_last(&mut self, output: usize) -> Result<&[f32]> {
        let _ = output;
        Err(Error::Unsupported("this device does not find the largest logits".into()))
    }

    /// Returns the rows of the last step's second result, [`Graph::hidden`], row-major.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the graph or the device has no such result. Another error if the
    /// device fails.
    fn hidden(&mut self) -> Result<&[f32]> {
        Err(Error::Unsupported("this graph has no second result".into()))
    }

    /// Compiles another graph that runs in turn with this one, as
    /// [`compile_with_progress`](super::Backend::compile_with_progress) does. Matrices that both
    /// read, which must be of the same file, are in memory once.
    ///
    /// # Errors
    /// As [`compile`](super::Backend::compile); [`Error::Unsupported`] if the device cannot share
    /// its weights.
    fn compile_beside(
        &self,
        graph: &Graph,
        weights: &Weights,
        cache: &CacheLayout,
        max_tokens: usize,
        max_outputs: usize,
        progress: &LoadProgress<'_>,
    ) -> Result<Box<dyn Executable>> {
        let _ = (graph, weights, cache, max_tokens, max_outputs, progress);
        Err(Error::Unsupported("this device does not share the weights of a graph".into()))
    }

    /// Starts to prepare steps of up to 16 tokens of one sequence, unless that was done before, and
    /// returns whether they are prepared. Until then, the first of them may take much longer. The
    /// default implementation has nothing to prepare.
    fn warm_up(&mut self) -> bool {
        true
    }

    /// Returns the interface for pipelined greedy decoding, or `None` if the device lacks it.
    fn pipelined(&mut self) -> Option<&mut dyn Pipelined> {
        None
    }

    /// Returns the largest number of tokens of a step in which the bits of a token's results do not
    /// depend on the other tokens. By default any step is exact.
    fn exact_tokens(&self) -> usize {
        usize::MAX
    }

    /// Returns access to the cache's memory, or `None` if the device lacks it.
    fn cache(&mut self) -> Option<&mut dyn CacheAccess> {
        None
    }

    /// Sets whether several threads use the executable in turn; at first a single one does. Their
    /// own work then occupies cores between the steps.
    fn set_shared(&mut self, shared: bool) {
        let _ = shared;
    }

    /// Returns counts of the last step, and the device memory in use.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Switches the measurement of op times on or off, and drops all earlier measurements. It costs
    /// a little time, and is off at first.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device cannot measure its ops.
    fn set_profiling(&mut self, on: bool) -> Result<()> {
        if !on {
            return Ok(());
        }
        Err(Error::Unsupported("this device does not time its ops: measure whole steps, or use the CPU".into()))
    }

    /// Takes the op times of the steps since the last call, the longest first; empty while
    /// profiling is off. The times add up to those of [`run`](Self::run).
    fn take_profile(&mut self) -> Vec<OpTime> {
        Vec::new()
    }
}

/// A token and its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogit {
    /// The token's id.
    pub id: u32,
    /// The token's logit.
    pub logit: f32,
}

/// The largest number of logits that devices select.
pub(crate) const MAX_TOP_LOGITS: usize = 64;

/// The largest logits of an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopLogits {
    /// The largest logits in descending order, NaN first; equal logits are ordered by id.
    pub best: Vec<TokenLogit>,
    /// The natural logarithm of the sum of the exponentials of all logits.
    pub log_sum: f32,
}

/// Pipelined greedy decoding: the device chooses the tokens, and a step starts before the host has
/// read the result of the previous step.
pub trait Pipelined {
    /// Starts a step of runs of one token each, without waiting for its result. `copies` are as in
    /// [`Step`].
    ///
    /// # Errors
    /// As [`Executable::run`].
    fn start(&mut self, tokens: &[NextToken], runs: &[Run<'_>], copies: &[(PageId, PageId)]) -> Result<()>;

    /// Waits for the earliest started step whose result has not been taken, and returns its result.
    ///
    /// # Errors
    /// [`Error::Argument`] if no step has been started. Another error if the device fails.
    fn take(&mut self) -> Result<ChosenTokens>;
}

/// The result of a pipelined step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChosenTokens {
    /// The token with the largest logit after each token of the step, the lowest id of equal ones;
    /// `None` if a logit is NaN.
    pub ids: Vec<Option<u32>>,
    /// The second result of the graph, its hidden rows, `[ids, width]`; empty if it has none.
    pub hidden: Vec<f32>,
}

/// Access to the pages and states of a cache, between steps.
pub trait CacheAccess {
    /// Returns the layout of the cache.
    fn layout(&self) -> &CacheLayout;

    /// Copies pages, in order, and allocates memory for `parts`.
    ///
    /// # Errors
    /// Errors of the device, which may have too little memory.
    fn prepare(&mut self, copies: &[(PageId, PageId)], parts: &[CachePart]) -> Result<()>;

    /// Reads a page or a state in the order of elements that `kv_cache/parts.rs` describes.
    ///
    /// # Errors
    /// An internal error unless the part was prepared and has the size of `bytes`. Another error if
    /// the device fails.
    fn read(&mut self, part: CachePart, bytes: &mut [u8]) -> Result<()>;

    /// Writes a page or a state, as [`read`](Self::read) reads it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write(&mut self, part: CachePart, bytes: &[u8]) -> Result<()>;
}

/// A token of a pipelined step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextToken {
    /// This id.
    Given(u32),
    /// The token that the last started step chooses after its token of this index.
    Chosen(usize),
}

/// Counts of an executable's last step, and its device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of kernels that the last step started; 0 on a CPU.
    pub dispatches: u64,
    /// The time in which the host encoded and submitted them; 0 on a CPU.
    pub encoding: Duration,
    /// Bytes of device memory in use; 0 on a CPU.
    pub device_bytes: u64,
}

/// The time that steps spent in all calls of an op, or in another activity of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTime {
    /// The op's name, as in dumps of a [`Graph`], or the device's name for the activity, such as
    /// `wait`.
    pub op: &'static str,
    /// Number of calls.
    pub calls: u64,
    /// The time of all calls.
    pub time: Duration,
    /// The bytes of weights or of the cache that all calls read, each byte once per call; 0 if
    /// reading does not bound the op's time. Divided by `time` it is the bandwidth of all threads.
    pub bytes: u64,
}
