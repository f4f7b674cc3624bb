//! Runs the steps of a plan on a GPU.

use std::{
    cmp::Reverse,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    argmax::{self, ArgmaxQueue},
    best::TopSelection,
    cache::PageBuffers,
    context::Context,
    hidden::HiddenRows,
    kernel::{Resource, StepSizes},
    lower::{GpuLowering, StepKind, fuses},
    prepare::{self, Capacity},
    profile,
    program::{Buffers, GpuProgram, STORAGE, read_buffer},
    step::{EncodedStep, Layout},
    stored::PartTransfer,
    warm_up::WarmUp,
    weight_buffers::WeightBuffers,
};
use crate::{
    Error, Result,
    backend::{
        Bounds, CacheAccess, Executable, LoadProgress, MAX_TOP_LOGITS, NextToken, OpTime, Pipelined, Run, Step,
        StepProgress, TopLogits, Usage,
    },
    graph::{Graph, Op},
    kv_cache::{CacheLayout, LayerPlace, PageId, StateUpdate},
    plan::Plan,
    profile::FEW_ROWS,
    weights::Weights,
};

/// A compiled plan with its weights, cache and buffers.
pub(super) struct GpuExecutable {
    pub(super) context: Arc<Context>,
    plan: Plan,
    weight_buffers: WeightBuffers,
    /// The program of each [`StepKind`].
    programs: Vec<GpuProgram>,
    pub(super) buffers: Buffers,
    pub(super) cache: CacheLayout,
    /// The pages of each group of layers.
    pub(super) pages: Vec<PageBuffers>,
    pub(super) states: PageBuffers,
    pub(super) transfer: PartTransfer,
    layout: Layout,
    bounds: Bounds,
    /// The size of steps for which `values` are allocated.
    capacity: Capacity,
    /// The buffers of a step's values.
    values: Vec<Resource>,
    /// Whether the attention kernel of single tokens also appends their keys and values.
    fuses_append: bool,
    /// The page tables in the step's buffer.
    tables: Vec<u32>,
    /// Bytes of the buffer of attention's partial results.
    partials_bytes: u64,
    staging: wgpu::Buffer,
    logits: Vec<f32>,
    hidden: HiddenRows,
    argmax: ArgmaxQueue,
    best: TopSelection,
    next_commands: Option<NextCommands>,
    dispatches: u64,
    encoding: Duration,
    profile: Option<Vec<OpTime>>,
    /// The compilation of the kernels of short steps, if it was started.
    warm_up: Option<WarmUp>,
}

/// The result of a step that the host reads.
#[derive(Clone, Copy, PartialEq)]
enum Readback {
    Logits,
    Best,
    MostProbable,
}

/// The commands of the most probable next step, encoded while the device runs the current step.
struct NextCommands {
    sizes: StepSizes,
    readback: Readback,
    commands: wgpu::CommandBuffer,
}

impl GpuExecutable {
    /// Places the weights of `plan` that `weight_buffers` does not have yet.
    pub fn new(
        context: Arc<Context>,
        plan: Plan,
        weights: &Weights,
        mut weight_buffers: WeightBuffers,
        cache: CacheLayout,
        bounds: Bounds,
        progress: &LoadProgress<'_>,
    ) -> Result<Self> {
        prepare::check_heads(&context, &plan)?;
        let vectors = prepare::vectors(&plan, weights)?;
        let matrices = prepare::place_matrices(&context.traits, &plan, weights, &mut weight_buffers)?;
        let layout = prepare::layout(&context.traits, &plan, &vectors, &bounds, &cache)?;
        let program = |steps: StepKind| {
            let lowering = GpuLowering::new(&plan, &mut weight_buffers, &context.traits, &cache, &layout, &vectors);
            lowering.program(steps).map(GpuProgram::new)
        };
        let programs = StepKind::up_to(bounds.max_outputs).into_iter().map(program).collect::<Result<Vec<_>>>()?;
        weight_buffers.allocate(&context)?;
        weights.read_ahead();
        let mut chunks = 0;
        for (slice, shape) in matrices {
            weight_buffers.upload(&context, &weights.matrix(&slice, shape[0], shape[1])?, &mut chunks, progress)?;
        }
        let mut buffers = Buffers::default();
        buffers.set(Resource::Step, context.buffer("step", 4 * (layout.tables_at() + 64) as u64, STORAGE)?);
        buffers.set(Resource::Partials, context.buffer("attention's partial results", 4, STORAGE)?);
        let values = prepare::resources(&plan, &programs);
        let capacity = Capacity::at_first(&bounds);
        let staging = prepare::allocate(&context, &plan, &values, bounds.input_width(), capacity, &mut buffers)?;
        let pages = (0..cache.groups.len()).map(|group| PageBuffers::of_group(&cache, group)).collect();
        let states = PageBuffers::of_states(&cache);
        let fuses_append = fuses_append(&context, &plan, &cache);
        context.queue.submit([]);
        context.wait()?;
        let argmax = ArgmaxQueue::new(&context, &plan, bounds.max_outputs, &mut buffers)?;
        let best = TopSelection::new(&plan);
        let hidden = HiddenRows::new(&context, &plan)?;
        Ok(Self {
            context,
            plan,
            weight_buffers,
            programs,
            buffers,
            cache,
            pages,
            states,
            transfer: PartTransfer::default(),
            layout,
            bounds,
            capacity,
            values,
            fuses_append,
            tables: vec![],
            partials_bytes: 0,
            staging,
            logits: vec![],
            hidden,
            argmax,
            best,
            next_commands: None,
            dispatches: 0,
            encoding: Duration::ZERO,
            profile: None,
            warm_up: None,
        })
    }

    /// Writes the step's buffer and the token ids `ids`, and grows the buffers that are too small.
    fn prepare(&mut self, step: &Step<'_>, ids: &[u32]) -> Result<StepSizes> {
        let (encoded, sizes) = EncodedStep::new(&self.layout, step);
        self.grow(step, &sizes)?;
        let bytes = |words: usize| 4 * words as u64;
        let needed = bytes(self.layout.tables_at() + encoded.tables.len());
        if self.buffers.get(Resource::Step)?.size() < needed {
            self.unbind();
            self.buffers.set(Resource::Step, self.context.buffer("step", 2 * needed, STORAGE)?);
            self.tables.clear();
        }
        let buffer = self.buffers.get(Resource::Step)?;
        let queue = &self.context.queue;
        queue.write_buffer(buffer, 0, encoded.records());
        if !ids.is_empty() {
            queue.write_buffer(self.buffers.get(Resource::Ids)?, 0, bytemuck::cast_slice(ids));
        }
        if !step.rows.elements.is_empty() {
            queue.write_buffer(self.buffers.get(Resource::Given)?, 0, bytemuck::cast_slice(step.rows.elements));
        }
        if !(self.fuses_append && sizes.single && !sizes.long) {
            queue.write_buffer(buffer, bytes(self.layout.append_ranges_at()), encoded.append_ranges());
            queue.write_buffer(buffer, bytes(self.layout.query_blocks_at()), encoded.query_blocks());
        }
        if !encoded.runs().is_empty() {
            queue.write_buffer(buffer, bytes(self.layout.runs_at()), encoded.runs());
        }
        if !encoded.chunks().is_empty() && sizes.long {
            queue.write_buffer(buffer, bytes(self.layout.chunks_at()), encoded.chunks());
        }
        if self.tables != encoded.tables {
            queue.write_buffer(buffer, bytes(self.layout.tables_at()), bytemuck::cast_slice(&encoded.tables));
            self.tables = encoded.tables;
        }
        Ok(sizes)
    }

    /// Grows the buffers of values, pages, states and attention's partial results to the step's
    /// needs.
    fn grow(&mut self, step: &Step<'_>, sizes: &StepSizes) -> Result<()> {
        if let Some(capacity) = self.capacity.grown(step, &self.bounds) {
            self.unbind();
            // The old buffers are freed before the new ones are allocated. If that fails, the next
            // step allocates again.
            self.capacity = Capacity { tokens: 0, outputs: 0 };
            let Self { context, plan, values, bounds, buffers, .. } = self;
            self.staging.destroy();
            values.iter().for_each(|resource| buffers.free(*resource));
            self.staging = prepare::allocate(context, plan, values, bounds.input_width(), capacity, buffers)?;
            self.capacity = capacity;
        }
        let states = step.runs.iter().filter_map(|run| run.state).flat_map(StateUpdate::ids);
        let counts: Vec<_> = (0..self.pages.len()).map(|group| step.page_count(group)).collect();
        self.grow_cache(&counts, states.map(|id| id.index() + 1).max().unwrap_or(0))?;
        if (sizes.single || !sizes.long) && sizes.splits > 0 {
            let words = (sizes.tokens * sizes.splits * prepare::widest_partials(&self.plan)) as u64;
            if 4 * words > self.partials_bytes {
                self.unbind();
                self.partials_bytes = 4 * words.next_power_of_two();
                let buffer = self.context.buffer("attention's partial results", self.partials_bytes, STORAGE)?;
                self.buffers.set(Resource::Partials, buffer);
            }
        }
        Ok(())
    }

    /// Grows the buffers of pages to `counts` pages of each group, and the buffers of states.
    pub(super) fn grow_cache(&mut self, counts: &[usize], states: usize) -> Result<()> {
        for (group, count) in counts.iter().enumerate() {
            if self.pages[group].must_grow(*count) {
                self.unbind();
                self.pages[group].grow(&self.context, &mut self.buffers, *count)?;
            }
        }
        if self.states.must_grow(states) {
            self.unbind();
            self.states.grow(&self.context, &mut self.buffers, states)?;
        }
        Ok(())
    }

    pub(super) fn copy_pages(&mut self, copies: &[(PageId, PageId)]) -> Result<()> {
        for (group, pages) in self.pages.iter_mut().enumerate() {
            let of_group = copies.iter().filter(|(from, _)| from.group() == group);
            let numbers: Vec<_> = of_group.map(|(from, to)| (from.index(), to.index())).collect();
            pages.copy(&self.context, &self.buffers, &numbers)?;
        }
        Ok(())
    }

    /// Drops all bind groups and encoded commands, so that a replaced buffer is freed at once.
    fn unbind(&mut self) {
        self.programs.iter_mut().for_each(GpuProgram::unbind);
        self.argmax.program.unbind();
        self.best.program.unbind();
        self.next_commands = None;
    }

    /// Encodes the dispatches of a step; with profiling, runs and times them one by one instead.
    fn encode(
        &mut self,
        mut encoder: wgpu::CommandEncoder,
        step: &Step<'_>,
        sizes: &StepSizes,
    ) -> Result<wgpu::CommandEncoder> {
        let Self { context, programs, buffers, weight_buffers, cache, dispatches, profile, .. } = self;
        let program = &mut programs[StepKind::of(sizes) as usize];
        if let Some(profile) = profile {
            let seen = |layer: &LayerPlace| -> usize {
                let window = cache.groups[layer.group].window;
                step.runs.iter().map(|run| layer.position_bytes() * run.sees(window)).sum()
            };
            let cached: Vec<_> = cache.layers.iter().map(|layer| seen(layer) as u64).collect();
            profile::run(profile, encoder, context, buffers, weight_buffers, program, sizes, &cached)?;
            return Ok(context.device.create_command_encoder(&Default::default()));
        }
        *dispatches = program.encode(&mut encoder, context, buffers, weight_buffers, sizes)?;
        Ok(encoder)
    }

    /// Encodes a step with its readback.
    fn commands(&mut self, step: &Step<'_>, sizes: &StepSizes, readback: Readback) -> Result<wgpu::CommandBuffer> {
        let encoder = self.context.device.create_command_encoder(&Default::default());
        let mut encoder = self.encode(encoder, step, sizes)?;
        match readback {
            Readback::Logits => self.read_logits(&mut encoder, 0..sizes.outputs)?,
            Readback::Best => {
                let Self { context, buffers, weight_buffers, best, dispatches, .. } = self;
                *dispatches += best.program.encode(&mut encoder, context, buffers, weight_buffers, sizes)?;
                best.encode_readback(buffers, &mut encoder, sizes.outputs)?;
            }
            Readback::MostProbable => {
                let Self { context, buffers, weight_buffers, argmax, dispatches, staging, .. } = self;
                *dispatches += argmax.program.encode(&mut encoder, context, buffers, weight_buffers, sizes)?;
                argmax.encode_readback(buffers, &mut encoder, staging, sizes.outputs)?;
            }
        }
        self.hidden.encode_copy(&self.buffers, &mut encoder, sizes)?;
        Ok(encoder.finish())
    }

    /// Submits a step. While the device runs it, the host encodes another step of the same sizes,
    /// because the next step usually has them.
    fn submit(&mut self, step: &Step<'_>, readback: Readback) -> Result<StepSizes> {
        self.bounds.check(step)?;
        let start = Instant::now();
        if readback == Readback::Best && self.best.must_grow(step.outputs.len()) {
            self.unbind();
            self.best.grow(&self.context, &mut self.buffers, step.outputs.len())?;
        }
        let sizes = self.prepare(step, step.tokens)?;
        self.copy_pages(step.copies)?;
        self.hidden.start_step(&sizes);
        let commands = match self.next_commands.take() {
            Some(next) if next.sizes == sizes && next.readback == readback => next.commands,
            _ => self.commands(step, &sizes, readback)?,
        };
        self.context.queue.submit([commands]);
        self.encoding = start.elapsed();
        if !sizes.long && self.profile.is_none() {
            let commands = self.commands(step, &sizes, readback)?;
            self.next_commands = Some(NextCommands { sizes, readback, commands });
        }
        Ok(sizes)
    }

    /// Encodes the copy of the logits of some outputs to the buffer that the host reads.
    fn read_logits(&self, encoder: &mut wgpu::CommandEncoder, outputs: Range<usize>) -> Result<()> {
        let place = self.plan.logits();
        let (width, stride) = (place.shape.width as u64 * 4, super::lower::stride(&place) as u64 * 4);
        let from = self.buffers.get(Resource::Slot(place.slot.index()))?;
        let rows_in_copy = if width == stride { outputs.len() } else { 1 };
        for (copy, row) in outputs.clone().step_by(rows_in_copy.max(1)).enumerate() {
            let bytes = rows_in_copy as u64 * width;
            encoder.copy_buffer_to_buffer(from, row as u64 * stride, &self.staging, copy as u64 * bytes, bytes);
        }
        Ok(())
    }

    /// Waits for the submitted copy of the logits of this number of outputs, and calls `read` with
    /// them.
    fn read_copied(&self, outputs: usize, mut read: impl FnMut(&[f32])) -> Result<()> {
        let bytes = (outputs * self.plan.logits().shape.width * 4) as u64;
        if bytes > 0 {
            return read_buffer(&self.context, &self.staging, bytes, |found| read(bytemuck::cast_slice(found)));
        }
        read(&[]);
        Ok(())
    }

    /// Waits for the submitted copy of the logits of this number of outputs.
    fn wait_for_logits(&mut self, outputs: usize) -> Result<&[f32]> {
        let mut logits = std::mem::take(&mut self.logits);
        logits.clear();
        let result = self.read_copied(outputs, |found| logits.extend_from_slice(found));
        self.logits = logits;
        result.map(|()| self.logits.as_slice())
    }
}

/// Returns whether the kernels of all attention layers also append the keys and values of single
/// tokens.
fn fuses_append(context: &Context, plan: &Plan, cache: &CacheLayout) -> bool {
    plan.steps().iter().all(|step| match step.op.properties().attention {
        Some(attention) => matches!(step.op, Op::Fused(_)) && fuses(&context.traits, &attention, cache.cache_type),
        None => true,
    })
}

impl Executable for GpuExecutable {
    fn run(&mut self, step: &Step<'_>) -> Result<&[f32]> {
        let sizes = self.submit(step, Readback::Logits)?;
        self.wait_for_logits(sizes.outputs)
    }

    fn run_with_progress(
        &mut self,
        step: &Step<'_>,
        progress: &mut StepProgress<'_>,
        read: &mut dyn FnMut(&[f32]),
    ) -> Result<bool> {
        if !progress(0, 1) {
            return Ok(false);
        }
        let sizes = self.submit(step, Readback::Logits)?;
        self.read_copied(sizes.outputs, read)?;
        Ok(true)
    }

    fn best(&mut self, step: &Step<'_>, count: usize) -> Result<Option<&[TopLogits]>> {
        if count > MAX_TOP_LOGITS || step.outputs.is_empty() || self.profile.is_some() {
            return Ok(None);
        }
        let sizes = self.submit(step, Readback::Best)?;
        self.best.wait(&self.context, sizes.outputs, count).map(Some)
    }

    fn most_probable(&mut self, step: &Step<'_>) -> Result<Option<Vec<Option<u32>>>> {
        if step.outputs.is_empty() || self.profile.is_some() {
            return Ok(None);
        }
        let sizes = self.submit(step, Readback::MostProbable)?;
        let mut ids = vec![];
        read_buffer(&self.context, &self.staging, argmax::bytes(sizes.outputs), |found| ids = argmax::ids(found))?;
        Ok(Some(ids))
    }

    fn logits_of_last(&mut self, output: usize) -> Result<&[f32]> {
        let mut encoder = self.context.device.create_command_encoder(&Default::default());
        self.read_logits(&mut encoder, output..output + 1)?;
        self.context.queue.submit([encoder.finish()]);
        self.wait_for_logits(1)
    }

    fn hidden(&mut self) -> Result<&[f32]> {
        self.hidden.read(&self.context, &self.buffers)
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
        let limits = [max_tokens, max_outputs];
        super::compile(&self.context, graph, weights, self.weight_buffers.beside(), cache, limits, progress)
    }

    fn warm_up(&mut self) -> bool {
        let Self { context, programs, best, argmax, warm_up, .. } = self;
        let kernels = [&programs[StepKind::Few as usize], &best.program, &argmax.program];
        warm_up.get_or_insert_with(|| WarmUp::start(context, kernels)).is_done()
    }

    fn pipelined(&mut self) -> Option<&mut dyn Pipelined> {
        if self.profile.is_some() { None } else { Some(self) }
    }

    fn exact_tokens(&self) -> usize {
        FEW_ROWS
    }

    fn cache(&mut self) -> Option<&mut dyn CacheAccess> {
        Some(self)
    }

    fn usage(&self) -> Usage {
        let bytes = self.weight_buffers.bytes() + self.buffers.bytes() + self.staging.size();
        Usage { dispatches: self.dispatches, encoding: self.encoding, device_bytes: bytes }
    }

    fn set_profiling(&mut self, on: bool) -> Result<()> {
        if on && !self.context.traits.timestamps {
            return Err(Error::Unsupported(format!("{} cannot time its kernels", self.context.name)));
        }
        self.profile = on.then(Vec::new);
        self.next_commands = None;
        Ok(())
    }

    fn take_profile(&mut self) -> Vec<OpTime> {
        let mut profile = self.profile.as_mut().map(std::mem::take).unwrap_or_default();
        profile.sort_by_key(|op| Reverse(op.time));
        profile
    }
}

impl Pipelined for GpuExecutable {
    fn start(&mut self, tokens: &[NextToken], runs: &[Run<'_>], copies: &[(PageId, PageId)]) -> Result<()> {
        let given = |token: &NextToken| if let NextToken::Given(id) = token { *id } else { 0 };
        let ids: Vec<_> = tokens.iter().map(given).collect();
        let outputs: Vec<_> = (0..tokens.len()).collect();
        let step = Step { tokens: &ids, runs, outputs: &outputs, copies, ..Step::default() };
        self.bounds.check(&step)?;
        let start = Instant::now();
        let on_device = tokens.iter().all(|token| matches!(token, NextToken::Chosen(_)));
        let sizes = self.prepare(&step, if on_device { &[] } else { &ids })?;
        self.copy_pages(copies)?;
        let mut encoder = self.context.device.create_command_encoder(&Default::default());
        self.argmax.encode_ids(&self.buffers, &mut encoder, tokens)?;
        let mut encoder = self.encode(encoder, &step, &sizes)?;
        let Self { context, buffers, weight_buffers, argmax, dispatches, .. } = self;
        *dispatches += argmax.program.encode(&mut encoder, context, buffers, weight_buffers, &sizes)?;
        argmax.submit(context, buffers, encoder, tokens.len())?;
        self.encoding = start.elapsed();
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<Option<u32>>> {
        self.argmax.wait(&self.context)
    }
}
