//! Runs the steps of a graph that is compiled for the CPU.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    cache::CacheMemory,
    lower::CpuProgram,
    memory::{Memory, SlotPlace, StepSize, slot_places},
    profile::{GATHER, Profile, WAIT},
    step::{CallersWork, StepContext, StopPoint, run_tasks},
};
use crate::{
    Error, Result,
    backend::{
        Bounds, CacheAccess, Executable, LoadProgress, OpTime, Step, StepProgress,
        cpu::{
            kernels::Kernels,
            threads::pool::{Pool, Worker},
            weights::prepare::{PreparedWeights, widest_quantized},
        },
    },
    graph::Graph,
    kv_cache::{CacheLayout, CachePart, PageId},
    plan::Plan,
    profile::FEW_ROWS,
    weights::Weights,
};

/// A compiled graph with its weights, threads and memory.
pub(crate) struct CpuExecutable {
    plan: Plan,
    program: CpuProgram,
    weights: PreparedWeights,
    bounds: Bounds,
    kernels: &'static Kernels,
    /// Other executables that run in turn with this one may use it, too.
    pool: Arc<Mutex<Pool>>,
    cache: CacheMemory,
    memory: Memory,
    /// Number of tokens and outputs of the last step.
    last: StepSize,
    /// The rows of the last step's second result.
    hidden: Vec<f32>,
    /// The times of ops, while profiling is on.
    profile: Option<Profile>,
}

impl CpuExecutable {
    /// Compiles a graph for steps of up to `limits` tokens and outputs: prepares its weights,
    /// except those of `shared`, and allocates memory for steps of one token.
    ///
    /// # Errors
    /// If the cache is laid out for other layers, a weight is missing, unreadable or not as the
    /// graph says, the memory is refused, or the caller of `progress` cancels.
    pub fn new(
        graph: &Graph,
        weights: &Weights,
        shared: Option<&PreparedWeights>,
        cache: &CacheLayout,
        limits: StepSize,
        (kernels, pool): (&'static Kernels, Arc<Mutex<Pool>>),
        progress: &LoadProgress<'_>,
    ) -> Result<Self> {
        let cache = Bounds::layout_for(graph, cache)?;
        let plan = Plan::new(graph)?;
        let bounds = Bounds::new(&plan, &cache, limits.tokens, limits.outputs);
        let mut weights = PreparedWeights::new(&plan, weights, shared, &mut lock(&pool), progress)?;
        let program = CpuProgram::new(&plan, &weights)?;
        weights.keep_in_place(&plan)?;
        // After the program has read its vectors, which would otherwise wait for the read-ahead.
        weights.read_ahead();
        let size = StepSize { tokens: 1, outputs: 1 };
        let threads = lock(&pool).threads();
        let memory = Memory::new(&plan, &program, widest_quantized(&plan), threads, size)?;
        let cache = CacheMemory::new(cache, &plan);
        let hidden = vec![];
        Ok(Self { plan, program, weights, bounds, kernels, pool, cache, memory, last: size, hidden, profile: None })
    }

    /// Checks the step against the bounds of the compilation, and allocates memory for it.
    fn prepare(&mut self, step: &Step<'_>) -> Result<()> {
        self.bounds.check(step)?;
        self.cache.prepare(step)?;
        self.last = StepSize { tokens: step.tokens.len(), outputs: step.outputs.len() };
        self.memory.grow(&self.plan, &self.program, widest_quantized(&self.plan), step)
    }

    /// Runs a step, unless `progress` returns false.
    fn run_until(&mut self, step: &Step<'_>, progress: Option<&mut StepProgress<'_>>) -> Result<Option<&[f32]>> {
        if let Some(profile) = &mut self.profile {
            profile.start_step();
        }
        self.prepare(step)?;
        let Self { plan, program, weights, kernels, pool, cache, memory, profile, .. } = self;
        let slots = slot_places(plan, memory.size);
        let context = StepContext::new(step, kernels, weights, cache, memory, &slots);
        let (failure, stop) = (Mutex::new(None), StopPoint::default());
        let callers_work = Mutex::new(CallersWork { profile: profile.as_mut(), progress });
        let job = |worker: Worker<'_>| {
            let work = if worker.number == 0 { mem::take(&mut *lock(&callers_work)) } else { CallersWork::default() };
            // SAFETY: `prepare` checked the step and made room for it; every thread of the pool
            // runs the same tasks of the plan that the memory is for.
            if let Err(e) = unsafe { run_tasks(&program.tasks, &context, worker, work, &stop) } {
                lock(&failure).get_or_insert(e);
            }
        };
        if step.tokens.len() <= FEW_ROWS {
            lock(pool).run_small(&job)?
        } else {
            lock(pool).run(&job)?
        }
        if let Some(profile) = profile.as_mut() {
            profile.record(WAIT, 0);
        }
        if let Some(e) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(e);
        }
        if stop.is_reached() {
            return Ok(None);
        }
        let logits = gather_logits(plan, &slots, memory, step.outputs.len());
        if let Some(profile) = profile {
            profile.record(GATHER, 0);
        }
        Ok(Some(logits))
    }
}

impl Executable for CpuExecutable {
    fn run(&mut self, step: &Step<'_>) -> Result<&[f32]> {
        let logits = self.run_until(step, None)?;
        logits.ok_or_else(|| Error::internal("a step stopped that nothing can stop"))
    }

    fn run_with_progress(
        &mut self,
        step: &Step<'_>,
        progress: &mut StepProgress<'_>,
        read: &mut dyn FnMut(&[f32]),
    ) -> Result<bool> {
        Ok(self.run_until(step, Some(progress))?.map(read).is_some())
    }

    fn hidden(&mut self) -> Result<&[f32]> {
        let Some(place) = self.plan.hidden() else {
            return Err(Error::internal("the graph has no second result"));
        };
        let slots = slot_places(&self.plan, self.memory.size);
        let SlotPlace { offset, stride } = slots[place.slot.index()];
        let (rows, width) = (self.last.rows_of(place.shape.rows), place.shape.width);
        self.hidden.clear();
        for row in 0..rows {
            // SAFETY: the slot has all rows of the step, which has written them, and the threads
            // are idle.
            let row = unsafe {
                let start = self.memory.slots.as_ptr().cast::<f32>().add(offset + row * stride);
                std::slice::from_raw_parts(start, width)
            };
            self.hidden.extend_from_slice(row);
        }
        Ok(&self.hidden)
    }

    fn compile_beside(
        &self,
        graph: &Graph,
        weights: &Weights,
        cache: &CacheLayout,
        max_tokens: usize,
        max_outputs: usize,
        progress: &LoadProgress<'_>,
    ) -> Result<Box<dyn Executable>> {
        let limits = StepSize { tokens: max_tokens, outputs: max_outputs };
        let device = (self.kernels, self.pool.clone());
        Ok(Box::new(Self::new(graph, weights, Some(&self.weights), cache, limits, device, progress)?))
    }

    fn cache(&mut self) -> Option<&mut dyn CacheAccess> {
        Some(self)
    }

    fn set_shared(&mut self, shared: bool) {
        lock(&self.pool).set_shared(shared);
    }

    fn set_profiling(&mut self, on: bool) -> Result<()> {
        self.profile = on.then(Profile::new);
        Ok(())
    }

    fn take_profile(&mut self) -> Vec<OpTime> {
        self.profile.as_mut().map(Profile::take).unwrap_or_default()
    }
}

impl CacheAccess for CpuExecutable {
    fn layout(&self) -> &CacheLayout {
        &self.cache.layout
    }

    fn prepare(&mut self, copies: &[(PageId, PageId)], parts: &[CachePart]) -> Result<()> {
        self.cache.prepare_parts(copies, parts)
    }

    fn read(&mut self, part: CachePart, bytes: &mut [u8]) -> Result<()> {
        self.cache.read(part, bytes, &mut lock(&self.pool))
    }

    fn write(&mut self, part: CachePart, bytes: &[u8]) -> Result<()> {
        self.cache.write(part, bytes, &mut lock(&self.pool))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves the rows of the logits together, which may start further apart in their slot.
fn gather_logits<'a>(plan: &Plan, slots: &[SlotPlace], memory: &'a mut Memory, outputs: usize) -> &'a [f32] {
    let place = plan.logits();
    let SlotPlace { offset, stride } = slots[place.slot.index()];
    let width = place.shape.width;
    // SAFETY: the slot has `outputs` rows, the step has written all of them, and the threads are
    // idle.
    unsafe {
        let logits = memory.slots.as_ptr().cast::<f32>().add(offset);
        for row in 1..outputs {
            logits.add(row * width).copy_from(logits.add(row * stride), width);
        }
        std::slice::from_raw_parts(logits, outputs * width)
    }
}
