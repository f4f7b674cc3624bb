//! A plan made ready on the CPU.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    lower::Program,
    memory::{Memory, SlotPlace, allocate, attentions, slot_places},
    profile::{GATHER, Profile, WAIT},
    step::{Walk, walk_tasks},
};
use crate::{
    Result,
    backend::{
        Bounds, Executable, LoadProgress, OpTime, Step,
        cpu::{
            kernels::{Kernels, attention},
            memory::pages::Pages,
            threads::pool::Pool,
            weights::prepare::{self, Prepared},
        },
    },
    kv_cache::{CacheLayout, StateUpdate},
    plan::Plan,
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
