//! A plan made ready on the CPU: its memory, and the walk of all threads through its tasks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    experts::Sizes,
    profile::{GATHER, PREPARE, Profile, WAIT},
    step::Walk,
    task::{Program, Task, row_stride},
};
use crate::{
    Error, Result,
    backend::{
        Bounds, Executable, LoadProgress, OpTime, Step,
        cpu::{
            kernels::{
                Kernels,
                attention::{self, LayerPages},
                quantize::Activations,
            },
            memory::{aligned::AlignedBytes, pages::Pages},
            threads::pool::{Pool, Worker},
            weights::prepare::{self, Prepared},
        },
    },
    graph::{AttentionSpec, Rows},
    kv_cache::{CacheLayout, LayerPlace, StateUpdate},
    plan::{Operand, Plan},
    quant::ROWS,
    weights::Weights,
};

/// A plan made ready.
pub(crate) struct CpuExecutable {
    plan: Plan,
    program: Program,
    prepared: Prepared,
    cache: CacheLayout,
    bounds: Bounds,
    kernels: &'static Kernels,
    pool: Pool,
    /// Those of each group of layers.
    pages: Vec<Pages>,
    states: Pages,
    memory: Memory,
    /// Where the time goes, while somebody wants to know.
    profile: Option<Profile>,
}

/// What steps work in; it grows to the largest step seen.
pub(crate) struct Memory {
    pub tokens: usize,
    pub outputs: usize,
    /// All slots.
    pub slots: AlignedBytes,
    /// Rows in 8 bits.
    pub activations: AlignedBytes,
    /// The tables of cosines and sines.
    pub angles: Vec<Vec<f32>>,
    /// One for each thread.
    pub scratch: Vec<AlignedBytes>,
    /// What layers of experts work in.
    pub experts: AlignedBytes,
    /// What sections of the cache come to until all of a unit have been attended to; it grows to the longest step seen.
    pub partials: AlignedBytes,
}

/// Where each slot lies: its offset in floats and the distance between its rows.
#[derive(Clone, Copy)]
pub(crate) struct SlotPlace {
    pub offset: usize,
    pub stride: usize,
}

impl CpuExecutable {
    pub fn new(
        plan: Plan,
        weights: &Weights,
        cache: CacheLayout,
        bounds: Bounds,
        kernels: &'static Kernels,
        mut pool: Pool,
        progress: &LoadProgress<'_>,
    ) -> Result<Self> {
        let mut prepared = Prepared::new(&plan, weights, &mut pool, progress)?;
        let program = Program::new(&plan, &prepared)?;
        prepared.keep_in_place(&plan)?;
        // Only now: the program's vectors would wait behind all that has been asked for.
        prepared.read_ahead();
        let memory = Memory::new(&plan, &program, prepare::widest_quantized(&plan), pool.threads(), [1, 1])?;
        let pages = cache.groups.iter().map(|group| Pages::new(group.page_bytes)).collect();
        let states = Pages::new(cache.state_bytes);
        Ok(Self { plan, program, prepared, cache, bounds, kernels, pool, pages, states, memory, profile: None })
    }

    /// Checks the step against what was compiled, and makes room for it.
    fn make_ready(&mut self, step: &Step<'_>) -> Result<()> {
        self.bounds.check(step)?;
        let [tokens, outputs] = [step.tokens.len(), step.outputs.len()];
        self.make_pages(step)?;
        let [old_tokens, old_outputs] = [self.memory.tokens, self.memory.outputs];
        if tokens > old_tokens || outputs > old_outputs {
            let room = [tokens.max(old_tokens), outputs.max(old_outputs)];
            let (widest, threads) = (prepare::widest_quantized(&self.plan), self.pool.threads());
            // The old memory goes before the new one comes, so that there is never more than the larger of them.
            for room in [[1, 1], room] {
                self.memory = Memory::new(&self.plan, &self.program, widest, threads, room)?;
            }
        }
        self.make_partials(step)
    }

    /// Makes room for the results of the sections of the cache that the step attends to.
    fn make_partials(&mut self, step: &Step<'_>) -> Result<()> {
        let of_spec = |spec| step.runs.iter().map(|run| attention::partials_len(spec, run.start, run.len)).sum();
        let bytes = 4 * attentions(&self.plan).map(of_spec).max().unwrap_or(0);
        if bytes > self.memory.partials.len() {
            for bytes in [0, bytes] {
                self.memory.partials = allocate(bytes, "the results of sections of the cache")?;
            }
        }
        Ok(())
    }

    /// Makes the cache pages and states that the step names for the first time, and copies the pages that are to be
    /// copied.
    fn make_pages(&mut self, step: &Step<'_>) -> Result<()> {
        for (group, pages) in self.pages.iter_mut().enumerate() {
            pages.grow(step.page_count(group))?;
        }
        step.copies.iter().for_each(|(from, to)| self.pages[from.group()].copy(from.index(), to.index()));
        let named = step.runs.iter().filter_map(|run| run.state).flat_map(StateUpdate::ids);
        self.states.grow(named.map(|id| id.index() + 1).max().unwrap_or(0))
    }
}

impl Executable for CpuExecutable {
    fn run(&mut self, step: &Step<'_>) -> Result<&[f32]> {
        if let Some(profile) = &mut self.profile {
            profile.begin();
        }
        self.make_ready(step)?;
        let Self { plan, program, prepared, cache, kernels, pool, pages, states, memory, profile, .. } = self;
        let slots = slot_places(plan, memory.tokens, memory.outputs);
        let walk = Walk::new(step, kernels, prepared, cache, (pages, states), memory, &slots);
        let failure = Mutex::new(None);
        let timed = Mutex::new(profile.as_mut());
        pool.run(&|worker| {
            // The caller's thread alone takes times.
            let profile = if worker.number == 0 { lock(&timed).take() } else { None };
            if let Err(e) = walk_tasks(&program.tasks, &walk, worker, profile) {
                lock(&failure).get_or_insert(e);
            }
        })?;
        if let Some(profile) = profile.as_mut() {
            profile.lap(WAIT, 0);
        }
        if let Some(e) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(e);
        }
        let logits = gather_logits(plan, &slots, memory, step.outputs.len());
        if let Some(profile) = profile {
            profile.lap(GATHER, 0);
        }
        Ok(logits)
    }

    fn set_shared(&mut self, shared: bool) {
        self.pool.set_shared(shared);
    }

    fn set_profiling(&mut self, on: bool) -> Result<()> {
        self.profile = on.then(Profile::new);
        Ok(())
    }

    fn take_profile(&mut self) -> Vec<OpTime> {
        self.profile.as_mut().map(Profile::take).unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn walk_tasks(
    tasks: &[(&'static str, Task)],
    walk: &Walk<'_>,
    worker: Worker<'_>,
    mut profile: Option<&mut Profile>,
) -> Result<()> {
    let mut lap = |op, task: Option<&Task>| {
        if let Some(profile) = &mut profile {
            profile.lap(op, task.map_or(0, |task| walk.bytes_of(task)));
        }
    };
    lap(PREPARE, None);
    let mut result = Ok(());
    for (index, (op, task)) in tasks.iter().enumerate() {
        if index > 0 && tasks[index - 1].1.must_wait_before(task) {
            let all_came = worker.wait();
            lap(WAIT, None);
            if !all_came {
                break;
            }
        }
        // A thread that failed goes on to meet the others at the barriers.
        if result.is_ok() {
            // SAFETY: `make_ready` checked the step, the threads share each task's work without overlap, and meet
            // where the next task reads what others wrote.
            result = unsafe { walk.perform(index, task, worker) };
            lap(op, Some(task));
        }
    }
    result
}

/// The logits, row by row without gaps, which their slot may have.
fn gather_logits<'a>(plan: &Plan, slots: &[SlotPlace], memory: &'a mut Memory, outputs: usize) -> &'a [f32] {
    let place = plan.logits();
    let SlotPlace { offset, stride } = slots[place.slot.index()];
    let width = place.shape.width;
    // SAFETY: the slot has room for `outputs` rows, all written, and the threads are idle.
    unsafe {
        let logits = memory.slots.as_ptr().cast::<f32>().add(offset);
        for row in 1..outputs {
            logits.add(row * width).copy_from(logits.add(row * stride), width);
        }
        std::slice::from_raw_parts(logits, outputs * width)
    }
}

impl Memory {
    fn new(
        plan: &Plan,
        program: &Program,
        widest: usize,
        threads: usize,
        [tokens, outputs]: [usize; 2],
    ) -> Result<Self> {
        let last = slot_places(plan, tokens, outputs);
        let floats = last.last().map_or(0, |end| end.offset);
        let rows = tokens.max(outputs);
        let scratch = (0..threads).map(|_| allocate(scratch_floats(plan, rows) * 4, "a thread's scratch"));
        Ok(Self {
            tokens,
            outputs,
            slots: allocate(floats * 4, "the activations")?,
            activations: allocate(Activations::bytes(rows, widest), "the activations in 8 bits")?,
            angles: program.angles.iter().map(|row| vec![0.0; 2 * row.len() * tokens]).collect(),
            scratch: scratch.collect::<Result<_>>()?,
            experts: allocate(experts_bytes(plan, rows), "the experts' activations")?,
            partials: allocate(0, "the results of sections of the cache")?,
        })
    }
}

/// The bytes that a plan's steps work in, over sequences of so many positions together.
pub(crate) fn scratch_bytes(
    plan: &Plan,
    widest: usize,
    threads: usize,
    [tokens, outputs]: [usize; 2],
    positions: usize,
) -> usize {
    let floats = slot_places(plan, tokens, outputs).last().map_or(0, |end| end.offset);
    let rows = tokens.max(outputs);
    let angles = 2 * frequencies(plan) * tokens;
    let partials = attentions(plan).map(|spec| attention::partials_bound(spec, tokens, positions)).max().unwrap_or(0);
    let fixed = 4 * (floats + angles) + Activations::bytes(rows, widest) + threads * 4 * scratch_floats(plan, rows);
    let fixed = fixed + experts_bytes(plan, rows);
    partials.saturating_mul(4).saturating_add(fixed)
}

/// The plan's attention ops.
fn attentions(plan: &Plan) -> impl Iterator<Item = AttentionSpec> {
    plan.steps().iter().filter_map(|step| step.op.properties().attention)
}

/// The bytes that layers of experts work in, one after the other.
fn experts_bytes(plan: &Plan, rows: usize) -> usize {
    plan.steps().iter().filter_map(Sizes::of).map(|sizes| sizes.bytes(rows)).max().unwrap_or(0)
}

/// The frequencies of all tables of angles.
fn frequencies(plan: &Plan) -> usize {
    let mut tables: Vec<&Operand> = Vec::new();
    for step in plan.steps() {
        let table = step.op.properties().frequencies.map(|index| &step.inputs[index]);
        tables.extend(table.filter(|table| !tables.contains(table)));
    }
    let widths = tables.into_iter().map(|table| match table {
        Operand::Weight { shape, .. } => shape.width,
        Operand::Constant(row) => row.len(),
        Operand::Tokens | Operand::Slot(_) => 0,
    });
    widths.sum()
}

/// Floats of scratch that a thread needs for steps of up to `rows` rows.
fn scratch_floats(plan: &Plan, rows: usize) -> usize {
    attentions(plan).map(attention::scratch_len).max().unwrap_or(0).max(2 * ROWS * rows)
}

/// Where the slots lie; the last entry is the end of them all.
fn slot_places(plan: &Plan, tokens: usize, outputs: usize) -> Vec<SlotPlace> {
    let mut offset = 0;
    let mut places = Vec::with_capacity(plan.slots().len() + 1);
    for slot in plan.slots() {
        let rows = match slot.rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => tokens,
            Rows::Outputs => outputs,
        };
        let stride = row_stride(slot.width);
        places.push(SlotPlace { offset, stride });
        offset += rows * stride;
    }
    places.push(SlotPlace { offset, stride: 0 });
    places
}

fn allocate(bytes: usize, what: &'static str) -> Result<AlignedBytes> {
    AlignedBytes::new(bytes).ok_or(Error::Memory { what, needed: bytes as u64, limit: 0 })
}

/// One layer's place in the pages of a run, those of each group.
pub(crate) fn layer_pages<'a>(cache: &CacheLayout, layer: usize, pages: &'a [Vec<*mut u8>]) -> LayerPages<'a> {
    let LayerPlace { kv_heads, head_dim, group, offset, row_bytes } = cache.layers[layer];
    LayerPages { cache_type: cache.cache_type, pages: &pages[group], offset, row_bytes, kv_heads, head_dim }
}
