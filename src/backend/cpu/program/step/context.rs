//! Shares the data of a step among all threads.

use std::{ops::Range, ptr, sync::atomic::AtomicUsize};

use crate::{
    backend::{
        Run, Step,
        cpu::{
            kernels::{Kernels, attention::LayerPages, recurrent::RunState, rows::StridedRows},
            memory::aligned::AlignedBytes,
            program::{
                buffer::Buffer,
                cache::CacheMemory,
                expert_slots::ExpertSlots,
                experts::ExpertsLayer,
                memory::{Memory, SlotPlace},
                task::Task,
            },
            threads::pool::Worker,
            weights::prepare::PreparedWeights,
        },
    },
    graph::Rows,
    kv_cache::StateUpdate,
};

/// The operands, memory and kernels of a step.
///
/// Its methods that run a task are `unsafe`, and require what [`super::run_tasks`] does.
pub(crate) struct StepContext<'a> {
    pub step: &'a Step<'a>,
    pub kernels: &'a Kernels,
    pub weights: &'a PreparedWeights,
    cache: &'a CacheMemory,
    slots: &'a [SlotPlace],
    slot_memory: *mut f32,
    /// The int8 activations of the current product.
    pub q8: &'a AlignedBytes,
    /// Tables of angles, `[tokens, stride]`.
    angles: Vec<StridedRows>,
    scratch: &'a [AlignedBytes],
    /// Partial results of attention, run after run.
    pub partials: *mut f32,
    experts: &'a AlignedBytes,
    /// `[runs, kv_heads]`: see
    /// [`Queries::done`](crate::backend::cpu::kernels::attention::Queries::done).
    pub splits_done: Vec<AtomicUsize>,
    pub runs: Vec<RunPlace<'a>>,
    /// The run of each token.
    run_of: Vec<usize>,
}

/// The tokens, cache pages and state of a run.
pub(crate) struct RunPlace<'a> {
    /// The first token within the step.
    pub first: usize,
    pub len: usize,
    /// The position of the first token.
    pub start: usize,
    /// The tokens that may see each other.
    pub spans: &'a [Range<usize>],
    rotary: &'a [[u32; 3]],
    /// `[groups, pages]`: the first byte of each page; null for a released page.
    pages: Vec<Vec<*mut u8>>,
    state: Option<&'a StateUpdate>,
}

// SAFETY: the pointers lead to memory of the executable, which the threads divide as the tasks say.
unsafe impl Sync for StepContext<'_> {}

impl<'a> StepContext<'a> {
    /// Collects the data of a step, for which `cache` and `memory` have been prepared.
    pub fn new(
        step: &'a Step<'a>,
        kernels: &'a Kernels,
        weights: &'a PreparedWeights,
        cache: &'a CacheMemory,
        memory: &'a mut Memory,
        slots: &'a [SlotPlace],
    ) -> Self {
        let tokens = memory.size.tokens;
        let table = |angles: &mut Vec<f32>| StridedRows { stride: angles.len() / tokens, start: angles.as_mut_ptr() };
        let angles = memory.angles.iter_mut().map(table).collect();
        let (mut runs, mut run_of) = (Vec::with_capacity(step.runs.len()), Vec::with_capacity(step.tokens.len()));
        for run in step.runs {
            let tables = run.pages.iter().enumerate().map(|(group, table)| {
                let pages = table.entries().iter();
                pages.map(|page| page.map_or(ptr::null_mut(), |id| cache.page(group, id.index()))).collect()
            });
            let first = run_of.len();
            run_of.extend(std::iter::repeat_n(runs.len(), run.len));
            let &Run { len, start, state, rotary, spans, .. } = run;
            runs.push(RunPlace { first, len, start, spans, rotary, pages: tables.collect(), state });
        }
        let kv_heads = cache.layout.layers.iter().map(|layer| layer.kv_heads).max().unwrap_or(0);
        Self {
            step,
            kernels,
            weights,
            cache,
            slots,
            slot_memory: memory.slots.as_ptr().cast(),
            q8: &memory.q8,
            angles,
            scratch: &memory.scratch,
            partials: memory.partials.as_ptr().cast(),
            experts: &memory.experts,
            splits_done: (0..runs.len() * kv_heads).map(|_| AtomicUsize::new(0)).collect(),
            runs,
            run_of,
        }
    }

    /// Returns the number of rows of a kind in this step.
    pub fn row_count(&self, rows: Rows) -> usize {
        match rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => self.step.tokens.len(),
            Rows::Outputs => self.step.outputs.len(),
        }
    }

    /// Returns the rows of a value.
    pub fn rows(&self, buffer: Buffer) -> StridedRows {
        let SlotPlace { offset, stride } = self.slots[buffer.slot];
        StridedRows { start: self.slot_memory.wrapping_add(offset), stride }
    }

    /// Returns a row of a value.
    pub fn row(&self, buffer: Buffer, row: usize) -> *mut f32 {
        self.rows(buffer).row(row)
    }

    /// Returns the run of a token.
    pub fn run_of(&self, token: usize) -> &RunPlace<'a> {
        &self.runs[self.run_of[token]]
    }

    /// Returns the position of a token in its sequence.
    pub fn position(&self, token: usize) -> usize {
        let run = self.run_of(token);
        run.start + token - run.first
    }

    /// Returns the rotary positions of a token.
    pub fn rotary_positions(&self, token: usize) -> [u32; 3] {
        let run = self.run_of(token);
        run.rotary.get(token - run.first).copied().unwrap_or([self.position(token) as u32; 3])
    }

    /// Returns the table of angles number `index`; its rows have `stride` elements.
    pub fn angles(&self, index: usize) -> StridedRows {
        self.angles[index]
    }

    /// Returns the scratch of a thread.
    pub fn scratch(&self, worker: Worker<'_>) -> *mut f32 {
        self.scratch[worker.number].as_ptr().cast()
    }

    /// Returns the cache of a run in a layer.
    pub fn layer_pages<'r>(&self, run: &'r RunPlace<'_>, layer: usize) -> LayerPages<'r> {
        self.cache.layer_pages(layer, &run.pages)
    }

    /// Returns the state of a run for recurrent op `op`. Steps of graphs with such ops have a state
    /// for each run, which `Bounds` has checked.
    pub fn run_state(&self, run: &RunPlace<'_>, op: usize) -> RunState {
        let none = RunState { from: ptr::null(), to: ptr::null_mut(), checkpoints: Vec::new() };
        run.state.map_or(none, |update| self.cache.run_state(op, run.start, update))
    }

    /// Returns the slots of a layer of experts.
    pub fn expert_slots(&self, layer: &ExpertsLayer) -> ExpertSlots {
        ExpertSlots::new(self.experts, layer.sizes, self.row_count(layer.x.rows))
    }

    /// Returns the bytes of weights or cache that a task has read.
    ///
    /// # Safety
    /// The calling thread has done its share of the task, and is the one that groups the tokens of
    /// experts.
    pub unsafe fn bytes_read(&self, task: &Task) -> usize {
        task.bytes_read(
            &self.cache.layout,
            self.runs.len(),
            |window| self.step.runs.iter().map(|run| run.sees(window)).sum(),
            // SAFETY: by the caller.
            |layer| unsafe { self.expert_slots(layer).active().len() },
        )
    }
}
