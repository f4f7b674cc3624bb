//! Runs the steps of a plan on a GPU.

mod step_buffers;
mod stored;
mod submit;

use std::{
    cmp::Reverse,
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    stored::PartTransfer,
    submit::{NextCommands, Readback},
};
use super::{
    argmax::{self, ArgmaxQueue},
    best::TopSelection,
    cache::PageBuffers,
    context::Context,
    hidden::HiddenRows,
    kernel::Resource,
    lower::{GpuLowering, StepKind, fuses},
    prepare::{self, Capacity},
    program::{Buffers, GpuProgram, STORAGE, read_buffer},
    step::Layout,
    warm_up::WarmUp,
    weight_buffers::WeightBuffers,
};
use crate::{
    Error, Result,
    backend::{
        Bounds, CacheAccess, ChosenTokens, Executable, LoadProgress, MAX_TOP_LOGITS, NextToken, OpTime, Pipelined, Run,
        Step, StepProgress, TopLogits, Usage,
    },
    graph::{Graph, Op},
    kv_cache::{CacheLayout, PageId},
    plan::Plan,
    profile::FEW_ROWS,
    weights::{TensorSlice, Weights},
};

/// A compiled plan with its weights, cache and buffers.
pub(super) struct GpuExecutable {
    context: Arc<Context>,
    plan: Plan,
    weight_buffers: WeightBuffers,
    /// The matrices that have to be uploaded, with their shapes `[rows, columns]`.
    matrices: Vec<(TensorSlice, [usize; 2])>,
    /// The program of each [`StepKind`].
    programs: Vec<GpuProgram>,
    buffers: Buffers,
    cache: CacheLayout,
    /// The pages of each group of layers.
    pages: Vec<PageBuffers>,
    states: PageBuffers,
    transfer: PartTransfer,
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
    /// The compilation of the kernels of prompts and single tokens, if it was started.
    first_kernels: Option<WarmUp>,
    /// The compilation of the kernels of short steps, if it was started.
    short_kernels: Option<WarmUp>,
}

impl GpuExecutable {
    /// Allocates buffers for the weights of `plan` that `weight_buffers` does not have yet, which
    /// have to be uploaded.
    pub fn new(
        context: Arc<Context>,
        plan: Plan,
        weights: &Weights,
        mut weight_buffers: WeightBuffers,
        cache: CacheLayout,
        bounds: Bounds,
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
        let mut buffers = Buffers::default();
        buffers.set(Resource::Step, context.buffer("step", 4 * (layout.tables_at() + 64) as u64, STORAGE)?);
        buffers.set(Resource::Partials, context.buffer("attention's partial results", 4, STORAGE)?);
        let values = prepare::resources(&plan, &programs);
        let capacity = Capacity::at_first(&bounds);
        let staging = prepare::allocate(&context, &plan, &values, bounds.input_width(), capacity, &mut buffers)?;
        let pages = (0..cache.groups.len()).map(|group| PageBuffers::of_group(&cache, group)).collect();
        let states = PageBuffers::of_states(&cache);
        let fuses_append = fuses_append(&context, &plan, &cache);
        let argmax = ArgmaxQueue::new(&context, &plan, bounds.max_outputs, &mut buffers)?;
        let best = TopSelection::new(&plan);
        let hidden = HiddenRows::new(&context, &plan)?;
        Ok(Self {
            context,
            plan,
            weight_buffers,
            matrices,
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
            first_kernels: None,
            short_kernels: None,
        })
    }

    /// Starts to compile the kernels of prompts and of single tokens. An adapter that is software
    /// has no processor of its own, and would only be disturbed.
    pub fn start_first_kernels(&mut self) {
        if self.context.traits.software {
            return;
        }
        let Self { context, programs, best, argmax, .. } = self;
        let single = [&programs[StepKind::Few as usize], &argmax.program, &best.program];
        let single =
            single.into_iter().flat_map(|program| program.single_row().map(|index| (program.kernels(), index)));
        let prompts = &programs[StepKind::Many as usize];
        let kernels = single.chain(prompts.all().map(|index| (prompts.kernels(), index)));
        self.first_kernels = Some(WarmUp::start(context, kernels.collect()));
    }

    /// Uploads the weights.
    pub fn upload(&mut self, weights: &Weights, progress: &LoadProgress<'_>) -> Result<()> {
        let Self { context, weight_buffers, matrices, .. } = self;
        weights.read_ahead();
        let matrices = std::mem::take(matrices);
        let placed = matrices.iter().map(|(slice, [rows, columns])| weights.matrix(slice, *rows, *columns));
        weight_buffers.upload(context, &placed.collect::<Result<Vec<_>>>()?, progress)?;
        context.queue.submit([]);
        context.wait()
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
        let Self { context, programs, short_kernels, .. } = self;
        let short = &programs[StepKind::Few as usize];
        let kernels = || short.all().map(|index| (short.kernels(), index)).collect();
        short_kernels.get_or_insert_with(|| WarmUp::start(context, kernels())).is_done()
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

    fn take(&mut self) -> Result<ChosenTokens> {
        self.argmax.wait(&self.context)
    }
}
