//! What the threads do, one task after another, and how the tasks of a plan are made.
//!
//! A plan's step becomes one to three tasks. Tasks that work row by row divide the rows among the threads in the same
//! way, and a row's place in a slot does not depend on the value that lies there, so such tasks need no barrier
//! between them.

use std::sync::Arc;

use super::{
    buffer::Buffer,
    experts::{Experts, Stage},
};
use crate::{
    backend::cpu::weights::{matrix::Matrix, prepare::Table},
    graph::{Activation, AttentionSpec, ConvSpec, DeltaSpec, RopeSpec, Rows},
    kv_cache::CacheLayout,
};

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
