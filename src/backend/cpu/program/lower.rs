//! Lowers a plan to tasks.

use std::sync::Arc;

use super::{
    buffer::Buffer,
    experts::{ExpertStage, ExpertsLayer},
    task::{
        AddRmsNorm, Angles, BinaryOp, Epilogue, GatedDelta, LayerNorm, MixRows, Product, RightOperand, ShortConv,
        Slice, StateScan, Task, Temper,
    },
};
use crate::{
    Error, Result,
    backend::cpu::weights::prepare::PreparedWeights,
    graph::{AttentionSpec, ConvSpec, DeltaSpec, ExpertsSpec, FusedOp, Op, RopeAxes, ScanSpec},
    plan::{Operand, Plan, PlanStep},
};

/// The tasks of a plan.
pub(crate) struct CpuProgram {
    /// Each task with its name in profiles: the name of its op, or a name for a task that only
    /// prepares one.
    pub tasks: Vec<(&'static str, Task)>,
    /// The frequencies and axes of each table of angles.
    pub angles: Vec<Angles>,
}

impl CpuProgram {
    /// Lowers the steps of `plan` to tasks.
    ///
    /// # Errors
    /// If a weight is missing, or the plan has an op that the CPU does not support.
    pub fn new(plan: &Plan, weights: &PreparedWeights) -> Result<Self> {
        let mut lowering = CpuLowering { weights, tasks: Vec::new(), angles: Vec::new() };
        for step in plan.steps() {
            lowering.lower(step)?;
        }
        let tables = lowering.angles.iter().enumerate();
        let tables = tables.map(|(index, angles)| ("angles", Task::Angles { angles: angles.clone(), index }));
        let mut tasks: Vec<_> = tables.collect();
        tasks.extend(lowering.tasks);
        Ok(Self { tasks, angles: lowering.angles })
    }
}

struct CpuLowering<'a> {
    weights: &'a PreparedWeights,
    tasks: Vec<(&'static str, Task)>,
    angles: Vec<Angles>,
}

impl CpuLowering<'_> {
    /// Appends the tasks of a step.
    fn lower(&mut self, step: &PlanStep) -> Result<()> {
        let inputs = &step.inputs;
        let outs: Vec<Buffer> = step.outputs.iter().map(Buffer::at).collect();
        let out = *outs.first().ok_or_else(|| Error::internal(format!("{} has no result", step.op.name())))?;
        let vector = |index: usize| self.weights.vector(&inputs[index]);
        let buffer = |index: usize| Buffer::of(&inputs[index]);
        let task = match &step.op {
            Op::Embed => Task::Embed { table: self.weights.table(&inputs[0])?, out },
            Op::MatMul | Op::MatMulHeads { .. } | Op::Fused(FusedOp::MatMulJoined) => {
                return self.product(step, Epilogue::Store, outs);
            }
            Op::Fused(FusedOp::MatMulGlu(activation)) => return self.product(step, Epilogue::Glu(*activation), outs),
            Op::Fused(FusedOp::MatMulAdd) => return self.product(step, Epilogue::Add(buffer(2)?), outs),
            Op::Add => self.binary(BinaryOp::Add, inputs, out)?,
            Op::Mul => self.binary(BinaryOp::Mul, inputs, out)?,
            Op::Div => self.binary(BinaryOp::Div, inputs, out)?,
            Op::Activate(activation) => Task::Activate { activation: *activation, x: buffer(0)?, out },
            Op::SoftCap { cap } => Task::SoftCap { cap: *cap, x: buffer(0)?, out },
            Op::Clamp => Task::Clamp { lower: vector(1)?[0], upper: vector(2)?[0], x: buffer(0)?, out },
            Op::Concat { groups } => {
                Task::Concat { operands: inputs.iter().map(Buffer::of).collect::<Result<_>>()?, groups: *groups, out }
            }
            Op::Slice { first, len, every } => {
                Task::Slice { slice: Slice { offset: *first, len: *len, stride: *every }, x: buffer(0)?, out }
            }
            Op::RmsNorm { eps } => Task::RmsNorm { x: buffer(0)?, w: vector(1)?, eps: *eps, out },
            Op::Fused(FusedOp::AddRmsNorm { eps }) => {
                let [a, b] = [buffer(0)?, buffer(1)?];
                Task::AddRmsNorm(AddRmsNorm { a, b, w: vector(2)?, eps: *eps, sum: out, out: outs[1] })
            }
            Op::LayerNorm { eps, groups } => {
                let norm = LayerNorm { x: buffer(0)?, w: vector(1)?, b: vector(2)?, eps: *eps, groups: *groups, out };
                Task::LayerNorm(norm)
            }
            Op::Rope(spec) => {
                Task::Rope { spec: *spec, x: buffer(0)?, angles: self.angles(&inputs[1], spec.axes)?, out }
            }
            Op::Attention(spec) => self.attention(inputs, *spec, out)?,
            Op::Route(spec) => {
                let bias = (inputs.len() > 1).then(|| vector(1)).transpose()?;
                Task::Route { spec: *spec, logits: buffer(0)?, bias, out }
            }
            Op::Experts(spec) => return self.experts(step, *spec, out),
            Op::ShortConv(spec) => self.short_conv(inputs, *spec, out)?,
            Op::GatedDelta(spec) => self.gated_delta(inputs, *spec, out)?,
            Op::StateScan(spec) => self.state_scan(inputs, *spec, out)?,
            Op::SelectOutputs => Task::Select { x: buffer(0)?, out },
            Op::JoinRows { count } => Task::JoinRows { count: *count, x: buffer(0)?, out },
            Op::InputRows { .. } => Task::InputRows { out },
            Op::PlaceRows { first, marked } => {
                Task::MixRows { mix: MixRows::Place { marked: *marked }, first: *first, x: buffer(0)?, out }
            }
            Op::AddRows { first } => Task::MixRows { mix: MixRows::Add, first: *first, x: buffer(0)?, out },
            Op::Temper { scale, interval, offset } => {
                let temper = Temper { scale: *scale, interval: *interval, offset: *offset };
                Task::Temper { temper, x: buffer(0)?, out }
            }
            Op::MixStreams { outputs } => {
                Task::MixStreams { outputs: *outputs, x: buffer(0)?, weights: buffer(1)?, out }
            }
            Op::Deviation { centered } => Task::Deviation { centered: *centered, x: buffer(0)?, out },
            Op::Interpolate { taps } => Task::Interpolate { table: self.weights.table(&inputs[0])?, taps: *taps, out },
            Op::Fused(FusedOp::MatMulAddRmsNorm { .. } | FusedOp::RotatedAttention { .. } | FusedOp::Gated { .. }) => {
                return Err(Error::internal(format!("the CPU does not support the op {}", step.op.name())));
            }
        };
        self.tasks.push((step.op.name(), task));
        Ok(())
    }

    /// Appends the task that stores keys and values, if there are new ones, and returns the task
    /// that attends to them.
    fn attention(&mut self, inputs: &[Operand], spec: AttentionSpec, out: Buffer) -> Result<Task> {
        if let [_, k, others @ ..] = inputs {
            let v = others.first().unwrap_or(k);
            self.tasks.push(("append", Task::Append { spec, k: Buffer::of(k)?, v: Buffer::of(v)? }));
        }
        let sinks = inputs.get(3).map(|sinks| self.weights.vector(sinks)).transpose()?;
        Ok(Task::Attend { spec, q: Buffer::of(&inputs[0])?, sinks, out })
    }

    fn experts(&mut self, step: &PlanStep, spec: ExpertsSpec, out: Buffer) -> Result<()> {
        let layer = Arc::new(ExpertsLayer::new(step, spec, self.weights, out)?);
        self.tasks.extend(ExpertStage::ALL.map(|(name, stage)| (name, Task::Experts(stage, layer.clone()))));
        Ok(())
    }

    fn short_conv(&self, inputs: &[Operand], spec: ConvSpec, out: Buffer) -> Result<Task> {
        let w = transposed(&self.weights.vector(&inputs[1])?, spec.kernel);
        let bias = inputs.get(2).map(|bias| self.weights.vector(bias)).transpose()?;
        Ok(Task::ShortConv(ShortConv { spec, x: Buffer::of(&inputs[0])?, w, bias, out }))
    }

    fn gated_delta(&self, inputs: &[Operand], spec: DeltaSpec, out: Buffer) -> Result<Task> {
        let [qkv, alpha, beta] = [Buffer::of(&inputs[0])?, Buffer::of(&inputs[1])?, Buffer::of(&inputs[2])?];
        let [a, dt] = [self.weights.vector(&inputs[3])?, self.weights.vector(&inputs[4])?];
        Ok(Task::GatedDelta(GatedDelta { spec, qkv, alpha, beta, a, dt, out }))
    }

    fn state_scan(&self, inputs: &[Operand], spec: ScanSpec, out: Buffer) -> Result<Task> {
        let [x, dt] = [Buffer::of(&inputs[0])?, Buffer::of(&inputs[1])?];
        let vector = |index: usize| self.weights.vector(&inputs[index]);
        Ok(Task::StateScan(StateScan { spec, x, dt, a: vector(2)?, bias: vector(3)?, d: vector(4)?, out }))
    }

    fn product(&mut self, step: &PlanStep, epilogue: Epilogue, outs: Vec<Buffer>) -> Result<()> {
        let (x, heads) = (Buffer::of(&step.inputs[0])?, step.stacked(0));
        let operands = step.matrices().iter();
        let matrices = operands.map(|operand| self.weights.matrix(operand, heads)).collect::<Result<Vec<_>>>()?;
        if matrices.iter().any(|matrix| matrix.is_quantized()) {
            self.tasks.push(("quantize", Task::Quantize { x, heads }));
        }
        self.tasks.push((step.op.name(), Task::Product(Product { x, heads, matrices, epilogue, outs })));
        Ok(())
    }

    fn binary(&self, op: BinaryOp, inputs: &[Operand], out: Buffer) -> Result<Task> {
        let b = match &inputs[1] {
            Operand::Slot(place) => RightOperand::Rows(Buffer::at(place)),
            row => match *self.weights.vector(row)? {
                [scalar] => RightOperand::Row(vec![scalar; out.width].into()),
                ref row => RightOperand::Row(row.into()),
            },
        };
        Ok(Task::Binary { op, a: Buffer::of(&inputs[0])?, b, out })
    }

    /// Returns the number of the table of angles with these frequencies and axes.
    fn angles(&mut self, frequencies: &Operand, axes: RopeAxes) -> Result<usize> {
        let angles = Angles { frequencies: self.weights.vector(frequencies)?, axes };
        let known = self.angles.iter().position(|known| *known == angles);
        Ok(known.unwrap_or_else(|| {
            self.angles.push(angles);
            self.angles.len() - 1
        }))
    }
}

/// Transposes a matrix with rows of `columns` elements.
fn transposed(matrix: &[f32], columns: usize) -> Arc<[f32]> {
    (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns).copied()).collect()
}
