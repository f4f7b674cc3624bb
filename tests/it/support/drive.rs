//! Runs graphs on backends with the interpreter's steps, so that their results can be
//! compared.

use std::collections::HashMap;

use inkstone::{
    CacheType, DType, Result, SequenceId,
    internals::{
        backend::{self, Backend, Executable, cpu::Cpu},
        graph::Graph,
        kv_cache::{CacheLayout, KvCache, Stage},
        quant,
        weights::Weights,
    },
};

use super::interpret::{self, Step};

/// A context that no test fills.
const CONTEXT: usize = 1 << 20;

/// Everything here that runs graphs. One more backend is one more entry.
pub fn backends() -> Vec<Box<dyn Backend>> {
    cpus().into_iter().chain(gpus()).collect()
}

/// The CPU with every instruction set that it has and several numbers of threads.
pub fn cpus() -> Vec<Box<dyn Backend>> {
    let sets = Cpu::instruction_sets();
    let cpus = sets.iter().flat_map(|set| [1, 2, 3].map(|threads| cpu(threads, set)));
    cpus.map(|cpu| Box::new(cpu) as Box<dyn Backend>).collect()
}

/// Every adapter, software too.
#[cfg(any(feature = "wgpu", feature = "metal"))]
pub fn gpus() -> Vec<Box<dyn Backend>> {
    use inkstone::{Adapter, internals::backend::webgpu::Gpu};
    let open = |info: backend::DeviceInfo| Gpu::new(&Adapter::Named(info.name)).expect("an adapter that opens");
    let adapters = Gpu::adapters();
    if adapters.is_empty() {
        eprintln!("skipped: GPUs, because this machine has no adapter, not even a software one");
    }
    adapters.into_iter().map(|info| Box::new(open(info)) as Box<dyn Backend>).collect()
}

/// None: the feature is off.
#[cfg(not(any(feature = "wgpu", feature = "metal")))]
pub fn gpus() -> Vec<Box<dyn Backend>> {
    Vec::new()
}

/// A CPU with these threads and this instruction set.
pub fn cpu(threads: usize, instruction_set: &str) -> Cpu {
    Cpu::with_instruction_set(Some(threads), instruction_set).expect("one that this machine has")
}

/// Whether products of more than [`FEW`] tokens round both sides to half precision.
pub fn has_halves(backend: &dyn Backend) -> bool {
    backend.device().details.contains("matrix units")
}

/// Tokens up to which steps read weights once for all, and round nothing to half precision.
pub const FEW: usize = 16;

/// The backend's name in messages.
pub fn label(backend: &dyn Backend) -> String {
    let device = backend.device();
    format!("{} {}, {} threads", device.name, device.details, device.threads)
}

/// A tensor of a graph.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: DType,
    pub rows: usize,
    pub columns: usize,
    /// As a file holds it.
    pub bytes: Vec<u8>,
}

/// The tensors as a backend reads them.
pub fn packed(tensors: &[Tensor]) -> Weights {
    let entries = tensors.iter().cloned().map(|t| (t.name, t.dtype, vec![t.rows, t.columns], t.bytes));
    Weights::from_memory(entries).expect("sound tensors")
}

/// Returns the tensors as the interpreter reads them: decoded by the reference decoder, which
/// another test compares with gguf-py.
pub fn dense(tensors: &[Tensor]) -> interpret::Weights {
    let decode = |t: &Tensor| {
        let mut out = vec![0.0; t.rows * t.columns];
        quant::dequantize_row(t.dtype, &t.bytes, &mut out).expect("whole blocks");
        (t.name.clone(), out)
    };
    tensors.iter().map(decode).collect()
}

/// A graph made ready on a backend, with the pages of its sequences.
pub struct Driver {
    pub executable: Box<dyn Executable>,
    cache: KvCache,
    sequences: HashMap<usize, SequenceId>,
}

impl Driver {
    /// Compiles for steps of up to `bounds` tokens and outputs.
    pub fn new(
        backend: &dyn Backend,
        graph: &Graph,
        weights: &Weights,
        cache_type: CacheType,
        bounds: [usize; 2],
    ) -> Result<Self> {
        let layout = CacheLayout::new(graph, cache_type)?;
        let executable = backend.compile(graph, weights, &layout, bounds[0], bounds[1])?;
        let cache = KvCache::new(&layout, CONTEXT);
        Ok(Self { executable, cache, sequences: HashMap::new() })
    }

    /// Runs a step; a run that starts before its sequence's end replaces what follows. With
    /// recurrent ops there must be a checkpoint where it starts.
    pub fn run(&mut self, step: &Step) -> Result<Vec<f32>> {
        let mut states = Vec::new();
        for run in &step.runs {
            let id = *self.sequences.entry(run.sequence).or_insert_with(|| self.cache.open());
            let held = self.cache.truncate(id, run.start)?;
            self.cache.extend(id, run.start + run.len - held)?;
            let end = run.start + run.len;
            states.push(self.cache.advance(id, end, Stage::Prompt { end })?);
            assert!(held == run.start || states.iter().all(Option::is_none), "no state at {}", run.start);
        }
        let copies = self.cache.take_copies();
        let mut runs = Vec::new();
        for (run, state) in step.runs.iter().zip(&states) {
            let pages = self.cache.pages(self.sequences[&run.sequence])?;
            let (state, rotary, spans) = (state.as_ref(), run.rotary.as_slice(), run.spans.as_slice());
            runs.push(backend::Run { len: run.len, start: run.start, pages, state, rotary, spans });
        }
        let tokens: Vec<_> = step.rows.iter().map(|(token, _)| *token).collect();
        let elements: Vec<_> = step.rows.iter().flat_map(|(_, row)| row.iter().copied()).collect();
        let step = backend::Step {
            tokens: &step.tokens,
            runs: &runs,
            outputs: &step.outputs,
            copies: &copies,
            rows: backend::InputRows { tokens: &tokens, elements: &elements },
            taps: &step.taps,
        };
        self.executable.run(&step).map(<[f32]>::to_vec)
    }

    /// Makes sequence `to` a fork of sequence `from`.
    pub fn fork(&mut self, from: usize, to: usize) -> Result<()> {
        let id = self.cache.fork(self.sequences[&from])?;
        self.sequences.insert(to, id);
        Ok(())
    }
}
