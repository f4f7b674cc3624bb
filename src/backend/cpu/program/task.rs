//! What the threads do, one task after another, and how the tasks of a plan are made.
//!
//! A plan's step becomes one to three tasks. Tasks that work row by row divide the rows among the threads in the same
//! way, and a row's place in a slot does not depend on the value that lies there, so such tasks need no barrier
//! between them.

use std::sync::Arc;

use super::experts::{Experts, Stage};
use crate::{
    Error, Result,
    backend::cpu::weights::{
        matrix::Matrix,
        prepare::{Prepared, Table},
    },
    graph::{Activation, AttentionSpec, ConvSpec, DeltaSpec, FusedOp, Op, RopeSpec, Rows},
    kv_cache::CacheLayout,
    plan::{Operand, Place, Plan, PlanStep},
};

/// Floats from one row of so many to the next.
pub(crate) fn row_stride(width: usize) -> usize {
    /// Rows begin at a vector's boundary.
    const UNIT: usize = 16;
    /// Floats in a page of memory.
    const PAGE: usize = 1024;
    let stride = width.next_multiple_of(UNIT);
    // Products write sixteen elements of every row, and rows that lie whole pages apart share a few sets of a cache.
    if stride.is_multiple_of(PAGE) { stride + UNIT } else { stride }
}

/// A value's place at run time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// The slot's number.
    pub slot: usize,
    /// The value's rows.
    pub rows: Rows,
    /// Elements in a row of the value; the slot's may be further apart.
    pub width: usize,
}

/// The second operand of an element-wise op.
pub(crate) enum Side {
    /// One row for all.
    Row(Arc<[f32]>),
    /// A row for each row.
    Rows(Buffer),
}

/// An element-wise op on two operands.
#[derive(Clone, Copy)]
pub(crate) enum BinaryOp {
    Add,
    Mul,
    Div,
}

/// What becomes of the products.
pub(crate) enum Finish {
    /// Each matrix's product goes to its own buffer.
    Store,
    /// The product is added to this.
    Add(Buffer),
    /// The first matrix's product is activated and multiplied with the second's.
    Glu(Activation),
}

/// Products of one operand with matrices.
pub(crate) struct Product {
    pub x: Buffer,
    pub matrices: Vec<Arc<Matrix>>,
    pub finish: Finish,
    pub outs: Vec<Buffer>,
}

impl Product {
    /// Pieces of work: groups of sixteen rows, those of one matrix after those of the other or, where two are finished
    /// together, the same of both.
    pub fn groups(&self) -> usize {
        match self.finish {
            Finish::Store => self.matrices.iter().map(|matrix| matrix.groups()).sum(),
            Finish::Add(_) | Finish::Glu(_) => self.matrices[0].groups(),
        }
    }

    /// The number of the matrix in which piece `index` lies, and its group there.
    pub fn locate(&self, mut index: usize) -> (usize, usize) {
        let mut number = 0;
        while index >= self.matrices[number].groups() {
            index -= self.matrices[number].groups();
            number += 1;
        }
        (number, index)
    }

    /// Pieces that a thread takes at a time.
    pub fn step(&self, tokens: usize) -> usize {
        stretch(self.groups(), self.matrices.iter().map(|matrix| matrix.bytes()).sum(), tokens)
    }
}

/// How many of `groups` pieces that are so many bytes together a thread takes at a time: with a few tokens, enough for
/// memory to be read in long stretches.
pub(crate) fn stretch(groups: usize, bytes: usize, tokens: usize) -> usize {
    const STRETCH: usize = 32 << 10;
    (STRETCH * groups / (tokens * bytes).max(1)).max(1)
}

/// One thing to do.
pub(crate) enum Task {
    /// Looks the tokens' rows up.
    Embed { table: Table, out: Buffer },
    /// Works out sines and cosines of the tokens' positions.
    Angles { frequencies: Arc<[f32]>, index: usize },
    /// Turns rows into 8 bits for the products that follow.
    Quantize { x: Buffer },
    /// Products of one operand with matrices.
    Product(Product),
    /// An element-wise op.
    Binary { op: BinaryOp, a: Buffer, b: Side, out: Buffer },
    /// A function of each element.
    Activate { activation: Activation, x: Buffer, out: Buffer },
    /// `cap tanh(x / cap)` of each element.
    SoftCap { cap: f32, x: Buffer, out: Buffer },
    /// Of each group of `every` elements the `len` from `first` on.
    Slice { first: usize, len: usize, every: usize, x: Buffer, out: Buffer },
    /// RMS norm of each group.
    RmsNorm { x: Buffer, w: Arc<[f32]>, eps: f32, out: Buffer },
    /// A sum, and the RMS norm of it.
    AddRmsNorm { a: Buffer, b: Buffer, w: Arc<[f32]>, eps: f32, sum: Buffer, out: Buffer },
    /// Rotary position embedding with the angles of that index.
    Rope { spec: RopeSpec, x: Buffer, angles: usize, out: Buffer },
    /// Writes keys and values into the cache.
    Append { spec: AttentionSpec, k: Buffer, v: Buffer },
    /// Attention over the cache.
    Attend { spec: AttentionSpec, q: Buffer, out: Buffer },
    /// A short convolution, with its weights `[kernel, channels]`.
    ShortConv { spec: ConvSpec, x: Buffer, w: Arc<[f32]>, out: Buffer },
    /// A gated delta rule.
    GatedDelta(GatedDelta),
    /// Copies the rows whose logits are wanted.
    Select { x: Buffer, out: Buffer },
    /// The softmax over the largest of each row.
    Route { used: usize, logits: Buffer, out: Buffer },
    /// A stage of a layer of experts.
    Experts(Stage, Arc<Experts>),
}

/// The operands of a gated delta rule.
pub(crate) struct GatedDelta {
    pub spec: DeltaSpec,
    pub qkv: Buffer,
    pub alpha: Buffer,
    pub beta: Buffer,
    pub a: Arc<[f32]>,
    pub dt: Arc<[f32]>,
    pub out: Buffer,
}

impl Task {
    /// The rows that the task divides among the threads; `None` where it divides its work in another way.
    fn rows(&self) -> Option<Rows> {
        match self {
            Self::Embed { .. } | Self::Angles { .. } => Some(Rows::Tokens),
            Self::Quantize { x } => Some(x.rows),
            Self::Binary { out, .. }
            | Self::Activate { out, .. }
            | Self::SoftCap { out, .. }
            | Self::Slice { out, .. }
            | Self::RmsNorm { out, .. }
            | Self::AddRmsNorm { out, .. }
            | Self::Rope { out, .. }
            | Self::Route { out, .. } => Some(out.rows),
            Self::Experts(Stage::Sum, experts) => Some(experts.out.rows),
            Self::Experts(..)
            | Self::Product(_)
            | Self::Append { .. }
            | Self::Attend { .. }
            | Self::ShortConv { .. }
            | Self::GatedDelta(_)
            | Self::Select { .. } => None,
        }
    }

    /// Whether the threads must meet between `self` and the task `next`.
    pub fn must_wait_before(&self, next: &Self) -> bool {
        self.rows().is_none() || self.rows() != next.rows()
    }

    /// The bytes of weights or cache that the task has to read in a step of so many `runs`, which see so many `positions`
    /// through a window and where so many experts are `active`; 0 where reading is not what it does.
    pub fn bytes(
        &self,
        cache: &CacheLayout,
        runs: usize,
        positions: impl Fn(Option<usize>) -> usize,
        active: impl Fn(&Experts) -> usize,
    ) -> usize {
        match self {
            Self::Product(product) => product.matrices.iter().map(|matrix| matrix.bytes()).sum(),
            Self::Experts(stage, experts) => active(experts) * experts.bytes_each(*stage),
            Self::Attend { spec, .. } => cache.layers[spec.layer].position_bytes() * positions(spec.scores.window),
            Self::GatedDelta(delta) => {
                let state = cache.states[delta.spec.state];
                size_of::<f32>() * state.rows * state.width * runs
            }
            Self::Embed { .. }
            | Self::Angles { .. }
            | Self::Quantize { .. }
            | Self::Binary { .. }
            | Self::Activate { .. }
            | Self::SoftCap { .. }
            | Self::Slice { .. }
            | Self::RmsNorm { .. }
            | Self::AddRmsNorm { .. }
            | Self::Rope { .. }
            | Self::Append { .. }
            | Self::ShortConv { .. }
            | Self::Select { .. }
            | Self::Route { .. } => 0,
        }
    }
}

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
            Op::MatMul | Op::Fused(FusedOp::MatMulJoined) => return self.product(step, Finish::Store, outs),
            Op::Fused(FusedOp::MatMulGlu(activation)) => return self.product(step, Finish::Glu(*activation), outs),
            Op::Fused(FusedOp::MatMulAdd) => return self.product(step, Finish::Add(buffer(&inputs[2])?), outs),
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
            Op::Fused(FusedOp::AddRmsNorm { eps }) => {
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
            Op::Route { top_k } => Task::Route { used: *top_k, logits: buffer(&inputs[0])?, out },
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
            Op::Fused(FusedOp::MatMulAddRmsNorm { .. }) | Op::Fused(FusedOp::RotatedAttention { .. }) => {
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

fn place(place: &Place) -> Buffer {
    Buffer { slot: place.slot.index(), rows: place.shape.rows, width: place.shape.width }
}

pub(crate) fn buffer(operand: &Operand) -> Result<Buffer> {
    match operand {
        Operand::Slot(slot) => Ok(place(slot)),
        Operand::Tokens | Operand::Weight { .. } | Operand::Constant(_) => {
            Err(Error::Graph("an operand that the step computes is a weight, a constant or the tokens".into()))
        }
    }
}
