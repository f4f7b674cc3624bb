//! Translates a plan into two programs of kernels: one for steps of few tokens, which read all
//! weights for little arithmetic, and one for steps of many.
//!
//! A value can be kept in several forms: f32, int8 for products with quantized matrices, f16 for
//! matrix units. Readers say which forms they want. The kernel that makes a value writes them, or a
//! `rows` kernel after it does.

mod attention;
mod experts;
mod grouped;
mod product;
mod recurrent;
mod rows;

pub(super) use attention::fuses;
pub(super) use product::variant;
pub(super) use recurrent::MIX;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    context::Traits,
    kernel::{Kernel, Resource, StepCondition, Workgroups},
    kernels::{ElementOp, Function, Operator, PendingNorm, Records, Rotation, Strided},
    step::Layout,
    weight_buffers::{GpuMatrix, WeightBuffers},
};
use crate::{
    DType, Error, Result,
    graph::{FusedOp, Op, RopeSpec, Rows},
    kv_cache::CacheLayout,
    plan::{Operand, Place, Plan, PlanStep},
    weights::TensorSlice,
};

/// The most tokens of the program for few.
pub(super) const GEMV_ROWS: usize = 16;

/// How rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// As f32.
    F32,
    /// As int8 in blocks of 32.
    Q8,
    /// As f16.
    F16,
    /// As the list of a row's experts, of which there are at most this many.
    Selected(usize),
}

type Forms = BTreeSet<Form>;

/// A dispatch, with variants for 1, 2, 4 and more rows where it has them.
#[derive(Debug)]
pub(super) struct Command {
    /// The name of the op in profiles.
    pub op: &'static str,
    /// The number of the plan's step that it is a part of.
    pub step: usize,
    pub condition: StepCondition,
    pub variants: Vec<Kernel>,
    /// Whether the variant goes by outputs rather than tokens.
    pub by_outputs: bool,
}

impl Command {
    /// A kernel of every step, whatever its rows.
    pub fn always(op: &'static str, kernel: Kernel) -> Self {
        Self { op, step: 0, condition: StepCondition::Always, variants: vec![kernel], by_outputs: false }
    }
}

/// Everything that lowering looks at, and the commands so far.
pub(super) struct GpuLowering<'a> {
    pub plan: &'a Plan,
    pub weight_buffers: &'a mut WeightBuffers,
    pub traits: &'a Traits,
    pub cache: &'a CacheLayout,
    pub layout: &'a Layout,
    pub vectors: &'a HashMap<TensorSlice, Arc<[f32]>>,
    /// Whether steps have at most [`GEMV_ROWS`] tokens.
    pub small_steps: bool,
    /// Whether steps may have more outputs than that.
    pub gemm_outputs: bool,
    wanted: Vec<Vec<Forms>>,
    /// The number of the plan's step that is being lowered.
    step: usize,
    /// Slots whose int8 rows still lack the division of a norm.
    pending: HashMap<usize, PendingNorm>,
    commands: Vec<Command>,
}

/// A result of a plan's step.
struct StepOutput {
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
        let (wanted, pending, commands) = (vec![], HashMap::new(), vec![]);
        let (small_steps, gemm_outputs) = (true, false);
        Self {
            plan,
            weight_buffers,
            traits,
            cache,
            layout,
            vectors,
            small_steps,
            gemm_outputs,
            wanted,
            step: 0,
            pending,
            commands,
        }
    }

    /// The commands of one program.
    pub fn program(mut self, small_steps: bool, gemm_outputs: bool) -> Result<Vec<Command>> {
        (self.small_steps, self.gemm_outputs) = (small_steps, gemm_outputs);
        self.wanted = self.wanted_forms()?;
        for (index, step) in self.plan.steps().iter().enumerate() {
            let forms = std::mem::take(&mut self.wanted[index]);
            self.step = index;
            let outputs: Vec<_> =
                step.outputs.iter().zip(forms).map(|(place, forms)| StepOutput { place: *place, forms }).collect();
            self.lower(step, &outputs)?;
        }
        Ok(self.commands)
    }

    fn lower(&mut self, step: &PlanStep, outputs: &[StepOutput]) -> Result<()> {
        for output in outputs {
            self.pending.remove(&output.place.slot.index());
        }
        self.compute(step, outputs)?;
        // `Route` writes its list itself.
        if !matches!(step.op, Op::Route { .. }) {
            outputs.iter().for_each(|output| self.select_experts(step.op.name(), output));
        }
        Ok(())
    }

    fn compute(&mut self, step: &PlanStep, outputs: &[StepOutput]) -> Result<()> {
        let name = step.op.name();
        match &step.op {
            Op::Embed => self.embed(name, &step.inputs[0], &outputs[0]),
            Op::MatMul | Op::Fused(FusedOp::MatMulJoined) => self.products(name, step, outputs),
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
            Op::Slice { first, len, every } => {
                let (first, len, every) = (*first, *len, *every);
                self.elementwise(name, step, &outputs[0], ElementOp::Slice { first, len, every })
            }
            Op::RmsNorm { eps } => self.rms_norm(name, step, &outputs[0], *eps),
            Op::Fused(FusedOp::AddRmsNorm { eps }) => self.add_rms_norm(name, step, outputs, *eps),
            Op::Rope(spec) => self.rope(name, step, &outputs[0], spec),
            Op::Attention(spec) => self.attention(name, step, &outputs[0], spec, None),
            Op::Fused(FusedOp::RotatedAttention { attention, rope, norm }) => {
                self.attention(name, step, &outputs[0], attention, Some((rope, *norm)))
            }
            Op::ShortConv(spec) => self.short_conv(name, step, &outputs[0], spec),
            Op::GatedDelta(spec) => self.gated_delta(name, step, &outputs[0], spec),
            Op::SelectOutputs => self.select(name, step, &outputs[0]),
            Op::Route { top_k } => self.route(name, step, &outputs[0], *top_k),
            Op::Experts(spec) => self.experts(name, step, &outputs[0], *spec),
        }
    }

    /// By step and result, the forms that its readers want.
    fn wanted_forms(&self) -> Result<Vec<Vec<Forms>>> {
        let steps = self.plan.steps();
        let mut wanted: Vec<Vec<Forms>> = steps.iter().map(|step| vec![Forms::new(); step.outputs.len()]).collect();
        let mut makers: HashMap<usize, (usize, usize)> = HashMap::new();
        for (index, step) in steps.iter().enumerate() {
            for (operand, input) in step.inputs.iter().enumerate() {
                let Operand::Slot(place) = input else { continue };
                let (step_of, output) = makers[&place.slot.index()];
                let forms = self.forms_read(step, operand)?;
                // A list is made of rows of f32, but for that of `Route`.
                if forms.iter().any(|form| matches!(form, Form::Selected(_)))
                    && !matches!(steps[step_of].op, Op::Route { .. })
                {
                    wanted[step_of][output].insert(Form::F32);
                }
                wanted[step_of][output].extend(forms);
            }
            for (output, place) in step.outputs.iter().enumerate() {
                makers.insert(place.slot.index(), (index, output));
            }
        }
        let (step, output) = makers[&self.plan.logits().slot.index()];
        wanted[step][output].insert(Form::F32);
        Ok(wanted)
    }

    fn forms_read(&self, step: &PlanStep, operand: usize) -> Result<Forms> {
        if let Op::Experts(spec) = &step.op {
            return self.forms_of_experts(step, operand, spec.top_k);
        }
        if operand > 0 || step.matrices().is_empty() {
            return Ok(Forms::from([Form::F32]));
        }
        let Operand::Slot(x) = &step.inputs[0] else { return Err(not_computed()) };
        step.matrices().iter().map(|matrix| Ok(self.form_for(&*self.matrix(matrix)?, x.shape.rows))).collect()
    }

    /// Returns the form of the rows that a matrix is multiplied with.
    fn form_for(&self, matrix: &GpuMatrix, rows: Rows) -> Form {
        let coded = matrix.planes().coded;
        match self.is_gemv(rows) {
            true if coded => Form::Q8,
            true => Form::F32,
            false if self.traits.matrices && (coded || matrix.dtype == DType::F16) => Form::F16,
            false => Form::F32,
        }
    }

    /// Whether a value has at most [`GEMV_ROWS`] rows.
    fn is_gemv(&self, rows: Rows) -> bool {
        match rows {
            Rows::Outputs => !self.gemm_outputs,
            Rows::Tokens | Rows::Fixed(_) => self.small_steps,
        }
    }

    fn matrix(&self, operand: &Operand) -> Result<Arc<GpuMatrix>> {
        let found = match operand {
            Operand::Weight { slice, .. } => self.weight_buffers.matrix(slice),
            Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => None,
        };
        found.cloned().ok_or_else(|| Error::Graph("a product's matrix is no weight".into()))
    }

    /// Returns a row of numbers, whether it is a constant or a weight.
    fn vector(&self, operand: &Operand) -> Result<Arc<[f32]>> {
        match operand {
            Operand::Constant(row) => Ok(row.clone()),
            Operand::Weight { slice, .. } => self.vectors.get(slice).cloned().ok_or_else(not_computed),
            Operand::Tokens | Operand::Slot(_) => Err(Error::Graph("a row of numbers depends on the step".into())),
        }
    }

    fn vector_resource(&mut self, operand: &Operand) -> Result<Resource> {
        let row = self.vector(operand)?;
        Ok(self.weight_buffers.place_vector(self.traits, row).into())
    }

    /// Makes the rotation of heads by a table of frequencies.
    fn rotation(&self, spec: &RopeSpec, frequencies: &Operand) -> Result<Rotation> {
        let row = self.vector(frequencies)?;
        let table = self.layout.frequencies.iter().position(|known| *known == row).ok_or_else(not_computed)?;
        Ok(Rotation { style: spec.style.into(), pairs: row.len(), angles_at: self.layout.angles_at(table) })
    }

    fn records(&self) -> Records {
        self.layout.into()
    }

    fn push(&mut self, op: &'static str, kernel: Kernel) {
        self.push_if(op, StepCondition::Always, kernel);
    }

    fn push_if(&mut self, op: &'static str, condition: StepCondition, kernel: Kernel) {
        self.commands.push(Command { op, step: self.step, condition, variants: vec![kernel], by_outputs: false });
    }

    /// Writes rows of f32 in the other forms that are wanted.
    fn convert(&mut self, op: &'static str, output: &StepOutput) {
        let written = |form: &Form| !matches!(form, Form::F32 | Form::Selected(_));
        let forms: Forms = output.forms.iter().copied().filter(written).collect();
        if !forms.is_empty() {
            let output = StepOutput { place: output.place, forms };
            self.rows(op, rows::RowOp::Copy(strided(&output.place)), &output, None, None);
        }
    }
}

/// Returns the elements from the start of a value's row to the start of the next: a multiple of
/// what products read at a time.
pub(super) fn stride(place: &Place) -> usize {
    place.shape.width.next_multiple_of(64)
}

/// Returns a value's rows of f32.
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
    Error::Graph("an operand is not of the kind that its op reads".into())
}

/// Returns the workgroups of one for every `by` rows.
fn count(rows: Rows, by: usize) -> Workgroups {
    match rows {
        Rows::Tokens => Workgroups::Tokens(by),
        Rows::Outputs => Workgroups::Outputs(by),
        Rows::Fixed(rows) => Workgroups::Fixed(rows.div_ceil(by)),
    }
}
