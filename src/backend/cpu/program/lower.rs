//! The tasks of a plan, and how they are made.

use std::sync::Arc;

use super::{
    buffer::{Buffer, buffer, place},
    experts::{Experts, Stage},
    task::{BinaryOp, Finish, GatedDelta, Product, Side, Task},
};
use crate::{
    Error, Result,
    backend::cpu::weights::prepare::Prepared,
    graph::Op,
    plan::{Operand, Plan, PlanStep},
};

/// The tasks of a plan, and the frequencies of each table of angles.
pub(crate) struct Program {
    /// Each task with its name in profiles: that of its op, or its own where it only serves one.
    pub tasks: Vec<(&'static str, Task)>,
    pub angles: Vec<Arc<[f32]>>,
}

impl Program {
    pub fn new(plan: &Plan, prepared: &Prepared) -> Result<Self> {
        let mut lowering = Lowering { prepared, tasks: Vec::new(), angles: Vec::new() };
        for step in plan.steps() {
            lowering.lower(step)?;
        }
        let first = lowering.angles.iter().enumerate();
        let angles = first.map(|(index, frequencies)| Task::Angles { frequencies: frequencies.clone(), index });
        let mut tasks: Vec<_> = angles.map(|task| ("angles", task)).collect();
        tasks.extend(lowering.tasks);
        Ok(Self { tasks, angles: lowering.angles })
    }
}

struct Lowering<'a> {
    prepared: &'a Prepared,
    tasks: Vec<(&'static str, Task)>,
    angles: Vec<Arc<[f32]>>,
}

impl Lowering<'_> {
    fn lower(&mut self, step: &PlanStep) -> Result<()> {
        let inputs = &step.inputs;
        let outs: Vec<Buffer> = step.outputs.iter().map(place).collect();
        let out = *outs.first().ok_or_else(|| Error::Graph(format!("{} has no result", step.op.name())))?;
        let task = match &step.op {
            Op::Embed => Task::Embed { table: self.prepared.table(&inputs[0])?, out },
            Op::MatMul | Op::MatMulJoined => return self.product(step, Finish::Store, outs),
            Op::MatMulGlu(activation) => return self.product(step, Finish::Glu(*activation), outs),
            Op::MatMulAdd => return self.product(step, Finish::Add(buffer(&inputs[2])?), outs),
            Op::Add => self.binary(BinaryOp::Add, inputs, out)?,
            Op::Mul => self.binary(BinaryOp::Mul, inputs, out)?,
            Op::Div => self.binary(BinaryOp::Div, inputs, out)?,
            Op::Activate(activation) => Task::Activate { activation: *activation, x: buffer(&inputs[0])?, out },
            Op::SoftCap { cap } => Task::SoftCap { cap: *cap, x: buffer(&inputs[0])?, out },
            Op::Slice { first, len, every } => {
                Task::Slice { first: *first, len: *len, every: *every, x: buffer(&inputs[0])?, out }
            }
            Op::RmsNorm { eps } => {
                Task::RmsNorm { x: buffer(&inputs[0])?, w: self.prepared.vector(&inputs[1])?, eps: *eps, out }
            }
            Op::AddRmsNorm { eps } => {
                let [a, b] = [buffer(&inputs[0])?, buffer(&inputs[1])?];
                let w = self.prepared.vector(&inputs[2])?;
                Task::AddRmsNorm { a, b, w, eps: *eps, sum: out, out: outs[1] }
            }
            Op::Rope(spec) => Task::Rope { spec: *spec, x: buffer(&inputs[0])?, angles: self.angles(&inputs[1])?, out },
            Op::Attention(spec) => {
                if let [_, k, v] = &inputs[..] {
                    self.tasks.push(("append", Task::Append { spec: *spec, k: buffer(k)?, v: buffer(v)? }));
                }
                Task::Attend { spec: *spec, q: buffer(&inputs[0])?, out }
            }
            Op::Route { used } => Task::Route { used: *used, logits: buffer(&inputs[0])?, out },
            Op::Experts(spec) => {
                let experts = Arc::new(Experts::new(step, *spec, self.prepared, out)?);
                let stages = Stage::ALL.map(|(name, stage)| (name, Task::Experts(stage, experts.clone())));
                self.tasks.extend(stages);
                return Ok(());
            }
            Op::ShortConv(spec) => {
                let w = transposed(&self.prepared.vector(&inputs[1])?, spec.kernel);
                Task::ShortConv { spec: *spec, x: buffer(&inputs[0])?, w, out }
            }
            Op::GatedDelta(spec) => {
                let [qkv, alpha, beta] = [buffer(&inputs[0])?, buffer(&inputs[1])?, buffer(&inputs[2])?];
                let [a, dt] = [self.prepared.vector(&inputs[3])?, self.prepared.vector(&inputs[4])?];
                Task::GatedDelta(GatedDelta { spec: *spec, qkv, alpha, beta, a, dt, out })
            }
            Op::SelectOutputs => Task::Select { x: buffer(&inputs[0])?, out },
            Op::MatMulAddRmsNorm { .. } | Op::RotatedAttention { .. } => {
                return Err(Error::Graph(format!("the CPU has no {}", step.op.name())));
            }
        };
        self.tasks.push((step.op.name(), task));
        Ok(())
    }

    fn product(&mut self, step: &PlanStep, finish: Finish, outs: Vec<Buffer>) -> Result<()> {
        let x = buffer(&step.inputs[0])?;
        let operands = step.matrices().iter();
        let matrices = operands.map(|operand| self.prepared.matrix(operand, 1)).collect::<Result<Vec<_>>>()?;
        if matrices.iter().any(|matrix| matrix.is_quantized()) {
            self.tasks.push(("quantize", Task::Quantize { x }));
        }
        self.tasks.push((step.op.name(), Task::Product(Product { x, matrices, finish, outs })));
        Ok(())
    }

    fn binary(&self, op: BinaryOp, inputs: &[Operand], out: Buffer) -> Result<Task> {
        let b = match &inputs[1] {
            Operand::Slot(b) => Side::Rows(place(b)),
            row => match *self.prepared.vector(row)? {
                [number] => Side::Row(vec![number; out.width].into()),
                ref row => Side::Row(row.into()),
            },
        };
        Ok(Task::Binary { op, a: buffer(&inputs[0])?, b, out })
    }

    /// The table of angles for these frequencies.
    fn angles(&mut self, frequencies: &Operand) -> Result<usize> {
        let frequencies = self.prepared.vector(frequencies)?;
        let known = self.angles.iter().position(|known| *known == frequencies);
        Ok(known.unwrap_or_else(|| {
            self.angles.push(frequencies);
            self.angles.len() - 1
        }))
    }
}

/// The columns of a matrix as rows.
fn transposed(matrix: &[f32], columns: usize) -> Arc<[f32]> {
    (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns).copied()).collect()
}
