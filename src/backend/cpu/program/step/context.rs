//! Where everything of one step lies.

use std::{ptr, sync::atomic::AtomicUsize};

use crate::{
    backend::{
        Step,
        cpu::{
            kernels::{
                Kernels,
                recurrent::{self, StatePlace},
            },
            memory::{aligned::AlignedBytes, pages::Pages},
            program::{
                buffer::Buffer,
                memory::{Memory, SlotPlace},
                task::Task,
            },
            weights::prepare::Prepared,
        },
    },
    graph::Rows,
    kv_cache::{CacheLayout, PageTable, StateId},
};

/// What all threads know of a step.
pub(crate) struct Walk<'a> {
    pub step: &'a Step<'a>,
    pub kernels: &'a Kernels,
    pub prepared: &'a Prepared,
    pub cache: &'a CacheLayout,
    pub slots: &'a [SlotPlace],
    memory: *mut f32,
    pub activations: &'a AlignedBytes,
    pub angles: Vec<(*mut f32, usize)>,
    pub scratch: &'a [AlignedBytes],
    pub partials: *mut f32,
    /// What layers of experts work in.
    pub experts: &'a AlignedBytes,
    /// For each run and key-value head, what [`Queries::done`] says.
    pub done: Vec<AtomicUsize>,
    pub runs: Vec<RunPlace>,
    /// The run of each token.
    pub run_of: Vec<usize>,
}

/// Where one run's tokens, cache pages and states lie.
pub(crate) struct RunPlace {
    pub first: usize,
    pub len: usize,
    pub start: usize,
    /// The first byte of each page, by group.
    pub pages: Vec<Vec<*mut u8>>,
    pub state: Option<StateBytes>,
}

/// Where the states of a run lie, those of all ops.
pub(crate) struct StateBytes {
    from: Option<*mut u8>,
    to: *mut u8,
    /// After how many of the run's tokens, and where.
    checkpoints: Vec<(usize, *mut u8)>,
}

// SAFETY: the pointers lead to memory that the executable owns; the threads divide it among themselves.
unsafe impl Sync for Walk<'_> {}

impl<'a> Walk<'a> {
    pub fn new(
        step: &'a Step<'a>,
        kernels: &'a Kernels,
        prepared: &'a Prepared,
        cache: &'a CacheLayout,
        (pages, states): (&[Pages], &Pages),
        memory: &'a mut Memory,
        slots: &'a [SlotPlace],
    ) -> Self {
        let tokens = memory.tokens;
        let angles = memory.angles.iter_mut().map(|table| (table.as_mut_ptr(), table.len() / tokens)).collect();
        let (mut runs, mut run_of) = (Vec::with_capacity(step.runs.len()), Vec::with_capacity(step.tokens.len()));
        for run in step.runs {
            let start = |(table, pages): (&PageTable, &Pages)| {
                let starts =
                    table.entries().iter().map(|page| page.map_or(ptr::null_mut(), |id| pages.start(id.index())));
                starts.collect()
            };
            let pages = run.pages.iter().zip(pages).map(start).collect();
            let place = |id: &StateId| states.start(id.index());
            let state = run.state.map(|state| StateBytes {
                from: state.from.as_ref().map(place),
                to: place(&state.to),
                checkpoints: state.checkpoints.iter().map(|(at, id)| (at - run.start, place(id))).collect(),
            });
            run_of.extend(std::iter::repeat_n(runs.len(), run.len));
            runs.push(RunPlace { first: run_of.len() - run.len, len: run.len, start: run.start, pages, state });
        }
        let kv_heads = cache.layers.iter().map(|layer| layer.kv_heads).max().unwrap_or(0);
        Self {
            step,
            kernels,
            prepared,
            cache,
            slots,
            memory: memory.slots.as_ptr().cast(),
            activations: &memory.activations,
            angles,
            scratch: &memory.scratch,
            partials: memory.partials.as_ptr().cast(),
            experts: &memory.experts,
            done: (0..runs.len() * kv_heads).map(|_| AtomicUsize::new(0)).collect(),
            runs,
            run_of,
        }
    }

    pub fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => self.step.tokens.len(),
            Rows::Outputs => self.step.outputs.len(),
        }
    }

    /// A row of a value.
    pub fn row(&self, buffer: Buffer, row: usize) -> *mut f32 {
        let SlotPlace { offset, stride } = self.slots[buffer.slot];
        self.memory.wrapping_add(offset + row * stride)
    }

    pub fn position(&self, token: usize) -> usize {
        let run = &self.runs[self.run_of[token]];
        run.start + token - run.first
    }

    /// The cosines and sines of a token in a table.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    pub unsafe fn angles(&self, index: usize, token: usize) -> &[f32] {
        let (table, width) = self.angles[index];
        // SAFETY: the table has a row for each token.
        unsafe { std::slice::from_raw_parts(table.add(token * width), width) }
    }

    /// The bytes of weights or cache that a task has to read.
    pub fn bytes_of(&self, task: &Task) -> usize {
        task.bytes(
            self.cache,
            self.runs.len(),
            |window| self.step.runs.iter().map(|run| run.sees(window)).sum(),
            |experts| self.active_experts(experts),
        )
    }

    pub fn rows_from(&self, buffer: Buffer, first: usize) -> recurrent::Rows {
        recurrent::Rows { start: self.row(buffer, first), stride: self.slots[buffer.slot].stride }
    }

    /// Where a run has the state of the op with this number.
    pub fn state(&self, run: &RunPlace, number: usize) -> StatePlace {
        let place = |start: *mut u8| start.wrapping_add(self.cache.state_offsets[number]).cast::<f32>();
        let null = StatePlace { from: ptr::null(), to: ptr::null_mut(), checkpoints: Vec::new() };
        run.state.as_ref().map_or(null, |state| StatePlace {
            from: state.from.map_or(ptr::null(), |from| place(from).cast_const()),
            to: place(state.to),
            checkpoints: state.checkpoints.iter().map(|(tokens, to)| (*tokens, place(*to))).collect(),
        })
    }
}
