//! Translates a plan into programs of kernels: one for steps of up to 16 tokens, which are limited
//! by reading the weights, and others for longer steps, which are limited by arithmetic.
//!
//! A value is stored in one or several forms: f32, int8 for products with quantized matrices, f16
//! for matrix units. The steps that read a value determine its forms. The kernel that computes the
//! value writes them, or a `rows` kernel after it converts them.

mod attention;
mod experts;
mod gated;
mod grouped;
mod product;
mod recurrent;
mod rows;

pub(super) use attention::fuses;
pub(super) use recurrent::MIX;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{
    context::Traits,
    kernel::{Kernel, Resource, StepCondition, StepSizes, Workgroups},
    kernels::{ElementOp, F32, Function, Operator, PendingNorm, Records, Rotation, RowCount, StepRowSource, Strided},
    step::{AngleTable, Layout},
    weight_buffers::{GpuMatrix, WeightBuffers},
};
use crate::{
    DType, Error, Result,
    graph::{FusedOp, Op, RopeSpec, Rows},
    kv_cache::CacheLayout,
    plan::{Operand, Place, Plan, PlanStep},
    profile::FEW_ROWS,
    weights::TensorSlice,
};

/// The largest number of rows that `matmul_few` multiplies, and of tokens in the first program.
pub(super) const GEMV_ROWS: usize = FEW_ROWS;

/// A storage form of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// f32.
    F32,
    /// f32 whose readers can complete a norm. [`Form::F32`] if the writer does not leave it to
    /// them.
    F32OrPending,
    /// int8 in blocks of 32 elements.
    Q8,
    /// f16 with a scale for each row.
    F16,
    /// A list of the row's active experts, with at most this many entries.
    Selected(usize),
}

type Forms = BTreeSet<Form>;

/// A dispatch: one kernel, or variants of it for different numbers of rows.
#[derive(Debug)]
pub(super) struct Command {
    /// The name of the op in profiles.
    pub op: &'static str,
    /// The index of the plan's step that the command is part of.
    pub step: usize,
    pub condition: StepCondition,
    pub variants: Vec<Kernel>,
    /// The largest number of rows of each variant but the last.
    pub variant_limits: Vec<usize>,
    /// The rows whose number selects the variant.
    pub variant_rows: RowCount,
}

impl Command {
    /// Returns the command of a kernel that every step dispatches.
    pub fn always(op: &'static str, kernel: Kernel) -> Self {
        let (condition, variant_rows) = (StepCondition::Always, RowCount::Tokens);
        Self { op, step: 0, condition, variants: vec![kernel], variant_limits: vec![], variant_rows }
    }

    /// Returns the index of the variant for a step of these sizes.
    pub fn variant(&self, sizes: &StepSizes) -> usize {
        let rows = match self.variant_rows {
            RowCount::Tokens => sizes.tokens,
            RowCount::Outputs => sizes.outputs,
        };
        let limits = &self.variant_limits[..self.variants.len() - 1];
        limits.iter().position(|limit| rows <= *limit).unwrap_or(limits.len())
    }
}

/// The inputs of lowering, and the commands so far.
pub(super) struct GpuLowering<'a> {
    pub plan: &'a Plan,
    pub weight_buffers: &'a mut WeightBuffers,
    pub traits: &'a Traits,
    pub cache: &'a CacheLayout,
    pub layout: &'a Layout,
    pub vectors: &'a HashMap<TensorSlice, Arc<[f32]>>,
    /// The steps of the program.
    steps: StepKind,
    /// The forms of each output of each step of the plan.
    forms: Vec<Vec<Forms>>,
    /// The index of the plan's step that is being lowered.
    step: usize,
    /// The steps that were lowered with a product before them.
    lowered: HashSet<usize>,
    /// Slots whose int8 rows are not yet divided by the root mean square of their norm.
    pending_norms: HashMap<usize, PendingNorm>,
    commands: Vec<Command>,
}

/// The steps that a program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// Steps of up to [`GEMV_ROWS`] tokens.
    Few,
    /// Longer steps of up to [`GEMV_ROWS`] outputs.
    Many,
    /// Longer steps of more outputs.
    ManyOutputs,
}

impl StepKind {
    /// Returns the steps that an executable has programs for.
    pub fn up_to(max_outputs: usize) -> Vec<Self> {
        let mut kinds = vec![Self::Few, Self::Many];
        if max_outputs > GEMV_ROWS {
            kinds.push(Self::ManyOutputs);
        }
        kinds
    }

    /// Returns the kind of a step of these sizes.
    pub fn of(sizes: &StepSizes) -> Self {
        match (sizes.long, sizes.outputs > GEMV_ROWS) {
            (false, _) => Self::Few,
            (true, false) => Self::Many,
            (true, true) => Self::ManyOutputs,
        }
    }
}

/// An output of a plan's step, and the forms in which it is stored.
struct OutputForms {
    place: Place,
    forms: Forms,
}

impl<'a> GpuLowering<'a> {
    pub fn new(
        plan: &'a Plan,
        weight_buffers: &'a mut WeightBuffers,
        traits: &'a Traits,
        cache: &'a CacheLayout,
        layout: &'a Layout,
        vectors: &'a HashMap<TensorSlice, Arc<[f32]>>,
    ) -> Self {
        let (forms, pending_norms, commands) = (vec![], HashMap::new(), vec![]);
        Self {
            plan,
            weight_buffers,
            traits,
            cache,
            layout,
            vectors,
            steps: StepKind::Few,
            forms,
            step: 0,
            lowered: HashSet::new(),
            pending_norms,
            commands,
        }
    }

    /// Returns the commands of the program of some steps.
    pub fn program(mut self, steps: StepKind) -> Result<Vec<Command>> {
        self.steps = steps;
        self.forms = self.forms_of_outputs()?;
        for (index, step) in self.plan.steps().iter().enumerate() {
            if self.lowered.contains(&index) {
                continue;
            }
            let forms = std::mem::take(&mut self.forms[index]);
            self.step = index;
            let outputs: Vec<_> =
                step.outputs.iter().zip(forms).map(|(place, forms)| OutputForms { place: *place, forms }).collect();
            self.lower(step, &outputs)?;
        }
        Ok(self.commands)
    }

    fn lower(&mut self, step: &PlanStep, outputs: &[OutputForms]) -> Result<()> {
        for output in outputs {
            self.pending_norms.remove(&output.place.slot.index());
        }
        self.compute(step, outputs)?;
        // `Route` writes its list itself.
        if !matches!(step.op, Op::Route(_)) {
            outputs.iter().for_each(|output| self.select_experts(step.op.name(), output));
        }
        Ok(())
    }

    fn compute(&mut self, step: &PlanStep, outputs: &[OutputForms]) -> Result<()> {
        let name = step.op.name();
        match &step.op {
            Op::Embed => self.embed(name, &step.inputs[0], &outputs[0]),
            Op::MatMul | Op::MatMulHeads { .. } | Op::Fused(FusedOp::MatMulJoined) => {
                self.products(name, step, outputs)
            }
            Op::Fused(FusedOp::MatMulGlu(activation)) => self.glu(name, step, &outputs[0], *activation),
            Op::Fused(FusedOp::MatMulAdd) => self.product_add(name, step, &outputs[0]),
            Op::Fused(FusedOp::MatMulAddRmsNorm { eps }) => self.product_add_norm(name, step, outputs, *eps),
            Op::Add => self.combine(name, step, &outputs[0], Operator::Add),
            Op::Mul => self.combine(name, step, &outputs[0], Operator::Mul),
            Op::Div => self.combine(name, step, &outputs[0], Operator::Div),
            Op::Activate(activation) => {
                self.elementwise(name, step, &outputs[0], ElementOp::Activate { function: Function(*activation) })
            }
            Op::SoftCap { cap } => self.elementwise(name, step, &outputs[0], ElementOp::SoftCap { cap: (*cap).into() }),
            Op::Clamp => {
                let [lower, upper] = [self.vector_resource(&step.inputs[1])?, self.vector_resource(&step.inputs[2])?];
                self.elementwise(name, step, &outputs[0], ElementOp::Clamp { lower, upper })
            }
            Op::Concat { groups } => self.concat(name, step, &outputs[0], *groups),
            Op::LayerNorm { eps, groups } => self.layer_norm(name, step, &outputs[0], *eps, *groups),
            Op::InputRows { .. } => {
                self.step_rows(name, step, &outputs[0], StepRowSource::Given { given_width: self.layout.input_width })
            }
            Op::PlaceRows { first, marked } => {
                let given_width = self.layout.input_width;
                let source = StepRowSource::Placed { first: *first, marked: *marked, given_width };
                self.step_rows(name, step, &outputs[0], source)
            }
            Op::Temper { scale, interval, offset } => {
                let source = StepRowSource::Tempered { scale: F32(*scale), interval: *interval, offset: *offset };
                self.step_rows(name, step, &outputs[0], source)
            }
            Op::AddRows { first } => {
                let source = StepRowSource::Added { first: *first, given_width: self.layout.input_width };
                self.step_rows(name, step, &outputs[0], source)
            }
            Op::JoinRows { count } => {
                let part = outputs[0].place.shape.width / count;
                self.step_rows(name, step, &outputs[0], StepRowSource::Joined { part })
            }
            Op::Interpolate { taps } => {
                let table = self.vector_resource(&step.inputs[0])?;
                let taps_at = self.layout.taps_at(*taps);
                self.step_rows(name, step, &outputs[0], StepRowSource::Interpolated { taps_at, table })
            }
            Op::MixStreams { outputs: sums } => self.mix_streams(name, step, &outputs[0], *sums),
            Op::Deviation { centered } => self.deviation(name, step, &outputs[0], *centered),
            Op::Slice { first, len, every } => {
                let (first, len, every) = (*first, *len, *every);
                self.elementwise(name, step, &outputs[0], ElementOp::Slice { first, len, every })
            }
            Op::RmsNorm { eps } => self.rms_norm(name, step, &outputs[0], *eps),
            Op::Fused(FusedOp::AddRmsNorm { eps }) => self.add_rms_norm(name, step, outputs, *eps),
            Op::Fused(FusedOp::Gated { activation, norm }) => {
                self.gated_rows(name, step, &outputs[0], *activation, *norm)
            }
            Op::Rope(spec) => self.rope(name, step, &outputs[0], spec),
            Op::Attention(spec) => self.attention(name, step, &outputs[0], spec, None),
            Op::Fused(FusedOp::RotatedAttention { attention, rope, norm }) => {
                self.attention(name, step, &outputs[0], attention, Some((rope, *norm)))
            }
            Op::ShortConv(spec) => self.short_conv(name, step, &outputs[0], spec),
            Op::GatedDelta(spec) => self.gated_delta(name, step, &outputs[0], spec),
            Op::StateScan(spec) => self.state_scan(name, step, &outputs[0], spec),
            Op::SelectOutputs => self.select(name, step, &outputs[0]),
            Op::Route(spec) => self.route(name, step, &outputs[0], spec),
            Op::Experts(spec) => self.experts(name, step, &outputs[0], *spec),
        }
    }

    /// Returns the forms that the readers of each output of each step need.
    fn forms_of_outputs(&self) -> Result<Vec<Vec<Forms>>> {
        let steps = self.plan.steps();
        let mut forms: Vec<Vec<Forms>> = steps.iter().map(|step| vec![Forms::new(); step.outputs.len()]).collect();
        let mut makers: HashMap<usize, (usize, usize)> = HashMap::new();
        for (index, step) in steps.iter().enumerate() {
            for (operand, input) in step.inputs.iter().enumerate() {
                let Operand::Slot(place) = input else { continue };
                let (step_of, output) = makers[&place.slot.index()];
                let read = self.forms_read(step, operand)?;
                // Lists are made from rows of f32, except by `Route`, which writes its list itself.
                if read.iter().any(|form| matches!(form, Form::Selected(_)))
                    && !matches!(steps[step_of].op, Op::Route(_))
                {
                    forms[step_of][output].insert(Form::F32);
                }
                forms[step_of][output].extend(read);
            }
            for (output, place) in step.outputs.iter().enumerate() {
                makers.insert(place.slot.index(), (index, output));
            }
        }
        for result in [self.plan.logits()].into_iter().chain(self.plan.hidden()) {
            let (step, output) = makers[&result.slot.index()];
            forms[step][output].insert(Form::F32);
        }
        for (step, forms) in steps.iter().zip(&mut forms) {
            let leaves_norm = self.leaves_norm(step, forms)?;
            for (number, forms) in forms.iter_mut().enumerate() {
                if !(leaves_norm && number == 1) && forms.remove(&Form::F32OrPending) {
                    forms.insert(Form::F32);
                }
            }
        }
        Ok(forms)
    }

    /// Returns whether a step leaves the norm of its second output to the readers, given the forms
    /// that these need.
    fn leaves_norm(&self, step: &PlanStep, forms: &[Forms]) -> Result<bool> {
        let (Op::Fused(FusedOp::MatMulAddRmsNorm { .. }), [_, normed]) = (&step.op, forms) else { return Ok(false) };
        let can_complete = normed.iter().all(|form| matches!(form, Form::Q8 | Form::F32OrPending));
        Ok(can_complete && normed.contains(&Form::Q8) && self.writes_q8(&step.outputs[0], &self.matrices(step)?))
    }

    fn forms_read(&self, step: &PlanStep, operand: usize) -> Result<Forms> {
        if let Op::Experts(spec) = &step.op {
            return self.forms_of_experts(step, operand, spec.top_k);
        }
        if operand > 0 || step.matrices().is_empty() {
            return Ok(Forms::from([Form::F32]));
        }
        let Operand::Slot(x) = &step.inputs[0] else { return Err(not_computed()) };
        // A norm that is completed in products needs the squares of whole rows, which a head lacks:
        // it is not left to them where rows of f32 are read too.
        let whole = matches!(step.op, Op::MatMulHeads { .. }).then_some(Ok(Form::F32));
        let forms = step.matrices().iter().map(|matrix| Ok(self.form_for(&*self.matrix(matrix)?, x.shape.rows)));
        forms.chain(whole).collect()
    }

    /// Returns the form of the rows that a matrix is multiplied with.
    fn form_for(&self, matrix: &GpuMatrix, rows: Rows) -> Form {
        let coded = matrix.planes().coded();
        match self.is_gemv(rows) {
            true if coded => Form::Q8,
            true => Form::F32OrPending,
            false if self.traits.matrices && (coded || matrix.dtype == DType::F16) => Form::F16,
            false => Form::F32,
        }
    }

    /// Returns whether the steps have at most [`GEMV_ROWS`] tokens.
    fn is_few(&self) -> bool {
        self.steps == StepKind::Few
    }

    /// Returns whether a value has at most [`GEMV_ROWS`] rows.
    fn is_gemv(&self, rows: Rows) -> bool {
        match rows {
            Rows::Outputs => self.steps != StepKind::ManyOutputs,
            Rows::Tokens | Rows::Fixed(_) => self.is_few(),
        }
    }

    fn matrix(&self, operand: &Operand) -> Result<Arc<GpuMatrix>> {
        let found = match operand {
            Operand::Weight { slice, .. } => self.weight_buffers.matrix(slice),
            Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => None,
        };
        found.cloned().ok_or_else(|| Error::internal("a product's matrix is no weight"))
    }

    /// Returns the vector of a constant or of a weight with one row.
    fn vector(&self, operand: &Operand) -> Result<Arc<[f32]>> {
        match operand {
            Operand::Constant(row) => Ok(row.clone()),
            Operand::Weight { slice, .. } => self.vectors.get(slice).cloned().ok_or_else(not_computed),
            Operand::Tokens | Operand::Slot(_) => Err(Error::internal("a row of numbers depends on the step")),
        }
    }

    fn vector_resource(&mut self, operand: &Operand) -> Result<Resource> {
        let row = self.vector(operand)?;
        Ok(self.weight_buffers.place_vector(self.traits, row).into())
    }

    /// Returns the parameters of the rotation of heads by a table of frequencies.
    fn rotation(&self, spec: &RopeSpec, frequencies: &Operand) -> Result<Rotation> {
        let table = AngleTable { frequencies: self.vector(frequencies)?, axes: spec.axes };
        let number = self.layout.angles.iter().position(|known| *known == table).ok_or_else(not_computed)?;
        let pairs = table.frequencies.len();
        Ok(Rotation { style: spec.style.into(), pairs, angles_at: self.layout.angles_at(number) })
    }

    fn records(&self) -> Records {
        self.layout.into()
    }

    fn push(&mut self, op: &'static str, kernel: Kernel) {
        self.push_if(op, StepCondition::Always, kernel);
    }

    fn push_if(&mut self, op: &'static str, condition: StepCondition, kernel: Kernel) {
        self.commands.push(Command {
            op,
            step: self.step,
            condition,
            variants: vec![kernel],
            variant_limits: vec![],
            variant_rows: RowCount::Tokens,
        });
    }

    /// Converts an output in f32 to its int8 and f16 forms, if it has them.
    fn convert(&mut self, op: &'static str, output: &OutputForms) {
        let converted = |form: &Form| matches!(form, Form::Q8 | Form::F16);
        let forms: Forms = output.forms.iter().copied().filter(converted).collect();
        if !forms.is_empty() {
            let output = OutputForms { place: output.place, forms };
            self.rows(op, rows::RowOp::Copy(strided(&output.place)), &output, None, None);
        }
    }
}

/// Returns the elements from the start of a value's row to the start of the next: a multiple of 64,
/// the elements that products read at a time.
pub(super) fn stride(place: &Place) -> usize {
    place.shape.width.next_multiple_of(64)
}

/// Returns the buffer of a value's f32 rows, and their stride.
fn strided(place: &Place) -> Strided {
    Strided { stride: stride(place), rows: slot(place) }
}

fn slot(place: &Place) -> Resource {
    Resource::Slot(place.slot.index())
}

fn place(operand: &Operand) -> Result<Place> {
    match operand {
        Operand::Slot(place) => Ok(*place),
        Operand::Tokens | Operand::Weight { .. } | Operand::Constant(_) => Err(not_computed()),
    }
}

fn not_computed() -> Error {
    Error::internal("an operand is not of the kind that its op reads")
}

/// Returns one workgroup for each group of `group` rows.
fn workgroups(rows: Rows, group: usize) -> Workgroups {
    match rows {
        Rows::Tokens => Workgroups::Tokens(group),
        Rows::Outputs => Workgroups::Outputs(group),
        Rows::Fixed(rows) => Workgroups::Fixed(rows.div_ceil(group)),
    }
}
