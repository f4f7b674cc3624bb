//! Translates a plan into two programs of kernels: one for steps of few tokens, which read all
//! weights for little arithmetic, and one for steps of many.
//!
//! A value can be kept in several forms: f32, int8 for products with quantised matrices, f16 for
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
    arena::{Arena, Matrix},
    context::Traits,
    kernel::{Count, Kernel, Resource, When},
    kernels::{ElementOp, Function, Operator, PendingNorm, Records, Rotation, Strided},
    step::Layout,
};
use crate::{
    DType, Error, Result,
    graph::{FusedOp, Op, RopeSpec, Rows},
    kv_cache::CacheLayout,
    plan::{Operand, Place, Plan, PlanStep},
    weights::TensorSlice,
};

/// The most tokens of the program for few.
pub(super) const FEW: usize = 16;

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
    pub when: When,
    pub variants: Vec<Kernel>,
    /// Whether the variant goes by outputs rather than tokens.
    pub by_outputs: bool,
}

impl Command {
    /// A kernel of every step, whatever its rows.
    pub fn always(op: &'static str, kernel: Kernel) -> Self {
        Self { op, step: 0, when: When::Always, variants: vec![kernel], by_outputs: false }
    }
}

/// Everything that lowering looks at, and the commands so far.
pub(super) struct Lowering<'a> {
    pub plan: &'a Plan,
    pub arena: &'a mut Arena,
    pub traits: &'a Traits,
    pub cache: &'a CacheLayout,
    pub layout: &'a Layout,
    pub vectors: &'a HashMap<TensorSlice, Arc<[f32]>>,
    /// Whether steps have at most [`FEW`] tokens.
    pub few: bool,
    /// Whether steps may have more outputs than that.
    pub many_outputs: bool,
    wanted: Vec<Vec<Forms>>,
    /// The number of the plan's step that is being lowered.
    step: usize,
    /// Slots whose int8 rows still lack the division of a norm.
    pending: HashMap<usize, PendingNorm>,
    commands: Vec<Command>,
}

/// A result of a plan's step.
struct Made {
    place: Place,
    forms: Forms,
}

impl<'a> Lowering<'a> {
    pub fn new(
        plan: &'a Plan,
        arena: &'a mut Arena,
        traits: &'a Traits,
        cache: &'a CacheLayout,
        layout: &'a Layout,
        vectors: &'a HashMap<TensorSlice, Arc<[f32]>>,
    ) -> Self {
        let (wanted, pending, commands) = (vec![], HashMap::new(), vec![]);
        let (few, many_outputs) = (true, false);
        Self { plan, arena, traits, cache, layout, vectors, few, many_outputs, wanted, step: 0, pending, commands }
    }

    /// The commands of one program.
    pub fn program(mut self, few: bool, many_outputs: bool) -> Result<Vec<Command>> {
        (self.few, self.many_outputs) = (few, many_outputs);
        self.wanted = self.wanted_forms()?;
        for (index, step) in self.plan.steps().iter().enumerate() {
            let forms = std::mem::take(&mut self.wanted[index]);
            self.step = index;
            let made: Vec<_> =
                step.outputs.iter().zip(forms).map(|(place, forms)| Made { place: *place, forms }).collect();
            self.lower(step, &made)?;
        }
        Ok(self.commands)
    }

    fn lower(&mut self, step: &PlanStep, made: &[Made]) -> Result<()> {
        for made in made {
            self.pending.remove(&made.place.slot.index());
        }
        self.compute(step, made)?;
        // `Route` writes its list itself.
        if !matches!(step.op, Op::Route { .. }) {
            made.iter().for_each(|made| self.select_experts(step.op.name(), made));
        }
        Ok(())
    }

    fn compute(&mut self, step: &PlanStep, made: &[Made]) -> Result<()> {
        let name = step.op.name();
        match &step.op {
            Op::Embed => self.embed(name, &step.inputs[0], &made[0]),
            Op::MatMul | Op::Fused(FusedOp::MatMulJoined) => self.products(name, step, made),
            Op::Fused(FusedOp::MatMulGlu(activation)) => self.glu(name, step, &made[0], *activation),
            Op::Fused(FusedOp::MatMulAdd) => self.product_add(name, step, &made[0]),
            Op::Fused(FusedOp::MatMulAddRmsNorm { eps }) => self.product_add_norm(name, step, made, *eps),
            Op::Add => self.combine(name, step, &made[0], Operator::Add),
            Op::Mul => self.combine(name, step, &made[0], Operator::Mul),
            Op::Div => self.combine(name, step, &made[0], Operator::Div),
            Op::Activate(activation) => {
                self.elementwise(name, step, &made[0], ElementOp::Activate { function: Function(*activation) })
            }
            Op::SoftCap { cap } => self.elementwise(name, step, &made[0], ElementOp::SoftCap { cap: (*cap).into() }),
            Op::Slice { first, len, every } => {
                let (first, len, every) = (*first, *len, *every);
                self.elementwise(name, step, &made[0], ElementOp::Slice { first, len, every })
            }
            Op::RmsNorm { eps } => self.rms_norm(name, step, &made[0], *eps),
            Op::Fused(FusedOp::AddRmsNorm { eps }) => self.add_rms_norm(name, step, made, *eps),
            Op::Rope(spec) => self.rope(name, step, &made[0], spec),
            Op::Attention(spec) => self.attention(name, step, &made[0], spec, None),
            Op::Fused(FusedOp::RotatedAttention { attention, rope, norm }) => {
                self.attention(name, step, &made[0], attention, Some((rope, *norm)))
            }
            Op::ShortConv(spec) => self.short_conv(name, step, &made[0], spec),
            Op::GatedDelta(spec) => self.gated_delta(name, step, &made[0], spec),
            Op::SelectOutputs => self.select(name, step, &made[0]),
            Op::Route { top_k } => self.route(name, step, &made[0], *top_k),
            Op::Experts(spec) => self.experts(name, step, &made[0], *spec),
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
    fn form_for(&self, matrix: &Matrix, rows: Rows) -> Form {
        let coded = matrix.planes().coded;
        match self.is_few(rows) {
            true if coded => Form::Q8,
            true => Form::F32,
            false if self.traits.matrices && (coded || matrix.dtype == DType::F16) => Form::F16,
            false => Form::F32,
        }
    }

    /// Whether a value has at most [`FEW`] rows.
    fn is_few(&self, rows: Rows) -> bool {
        match rows {
            Rows::Outputs => !self.many_outputs,
            Rows::Tokens | Rows::Fixed(_) => self.few,
        }
    }

    fn matrix(&self, operand: &Operand) -> Result<Arc<Matrix>> {
        let found = match operand {
            Operand::Weight { slice, .. } => self.arena.matrix(slice),
            Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => None,
        };
        found.cloned().ok_or_else(|| Error::internal("a product's matrix is no weight"))
    }

    /// Returns a row of numbers, whether it is a constant or a weight.
    fn vector(&self, operand: &Operand) -> Result<Arc<[f32]>> {
        match operand {
            Operand::Constant(row) => Ok(row.clone()),
            Operand::Weight { slice, .. } => self.vectors.get(slice).cloned().ok_or_else(not_computed),
            Operand::Tokens | Operand::Slot(_) => Err(Error::internal("a row of numbers depends on the step")),
        }
    }

    fn vector_resource(&mut self, operand: &Operand) -> Result<Resource> {
        let row = self.vector(operand)?;
        Ok(self.arena.place_vector(self.traits, row).into())
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
        self.push_when(op, When::Always, kernel);
    }

    fn push_when(&mut self, op: &'static str, when: When, kernel: Kernel) {
        self.commands.push(Command { op, step: self.step, when, variants: vec![kernel], by_outputs: false });
    }

    /// Writes rows of f32 in the other forms that are wanted.
    fn convert(&mut self, op: &'static str, made: &Made) {
        let written = |form: &Form| !matches!(form, Form::F32 | Form::Selected(_));
        let forms: Forms = made.forms.iter().copied().filter(written).collect();
        if !forms.is_empty() {
            let made = Made { place: made.place, forms };
            self.rows(op, rows::Source::Copy(strided(&made.place)), &made, None, None);
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
    Error::internal("an operand is not of the kind that its op reads")
}

/// Returns the workgroups of one for every `by` rows.
fn count(rows: Rows, by: usize) -> Count {
    match rows {
        Rows::Tokens => Count::Tokens(by),
        Rows::Outputs => Count::Outputs(by),
        Rows::Fixed(rows) => Count::Fixed(rows.div_ceil(by)),
    }
}
