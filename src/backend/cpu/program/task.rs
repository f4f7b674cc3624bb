//! Declares the tasks that the threads of a step run one after the other.
//!
//! A step of the plan becomes one to six tasks. Tasks that work row by row divide the rows among
//! the threads in the same way, and the place of a row in a slot does not depend on the value
//! there, so two such tasks need no barrier between them.

use std::sync::Arc;

use super::{
    buffer::Buffer,
    experts::{ExpertStage, ExpertsLayer},
};
use crate::{
    backend::cpu::weights::{matrix::Matrix, prepare::EmbeddingTable},
    graph::{Activation, AttentionSpec, ConvSpec, DeltaSpec, RopeAxes, RopeSpec, RouteSpec, Rows, ScanSpec, Window},
    kv_cache::CacheLayout,
};

/// A task of all threads.
pub(crate) enum Task {
    /// Looks up the rows of the tokens.
    Embed { table: EmbeddingTable, out: Buffer },
    /// Computes the cosines and sines of the tokens' positions, table number `index`.
    Angles { angles: Angles, index: usize },
    /// Quantizes rows to int8 for the products that follow, each of `heads` parts of a row as one.
    Quantize { x: Buffer, heads: usize },
    /// Multiplies one operand with matrices.
    Product(Product),
    /// Computes an element-wise op on two operands.
    Binary { op: BinaryOp, a: Buffer, b: RightOperand, out: Buffer },
    /// Applies an activation function to each element.
    Activate { activation: Activation, x: Buffer, out: Buffer },
    /// Computes `cap tanh(x / cap)` of each element.
    SoftCap { cap: f32, x: Buffer, out: Buffer },
    /// Limits each element to `lower` and `upper`.
    Clamp { lower: f32, upper: f32, x: Buffer, out: Buffer },
    /// Joins each of `groups` groups of the rows of several operands.
    Concat { operands: Vec<Buffer>, groups: usize, out: Buffer },
    /// Computes `outputs` weighted sums of the parts of each row.
    MixStreams { outputs: usize, x: Buffer, weights: Buffer, out: Buffer },
    /// Computes the root mean square of each row or, if `centered`, its standard deviation.
    Deviation { centered: bool, x: Buffer, out: Buffer },
    /// Copies parts of rows.
    Slice { slice: Slice, x: Buffer, out: Buffer },
    /// Computes the RMS norm of each group of `w.len()` elements.
    RmsNorm { x: Buffer, w: Arc<[f32]>, eps: f32, out: Buffer },
    /// Computes a sum, and its RMS norm.
    AddRmsNorm(AddRmsNorm),
    /// Computes the layer norm of each row.
    LayerNorm(LayerNorm),
    /// Rotates heads by the table of angles number `angles`.
    Rope { spec: RopeSpec, x: Buffer, angles: usize, out: Buffer },
    /// Writes keys and values to the cache, or keys alone, which `v` then are too.
    Append { spec: AttentionSpec, k: Buffer, v: Buffer },
    /// Computes attention over the cache.
    Attend { spec: AttentionSpec, q: Buffer, sinks: Option<Arc<[f32]>>, out: Buffer },
    /// Computes a short convolution.
    ShortConv(ShortConv),
    /// Computes a gated delta rule.
    GatedDelta(GatedDelta),
    /// Computes a state-space scan.
    StateScan(StateScan),
    /// Copies the rows whose logits the step returns.
    Select { x: Buffer, out: Buffer },
    /// Joins the rows of each output's token and of the tokens after it, `count` in all.
    JoinRows { count: usize, x: Buffer, out: Buffer },
    /// Copies the rows that the step gives for tokens; all other rows become 0.
    InputRows { out: Buffer },
    /// Multiplies rows by a factor of their positions.
    Temper { temper: Temper, x: Buffer, out: Buffer },
    /// Copies `x`, with the step's rows in the place of its own, or added to them.
    MixRows { mix: MixRows, first: usize, x: Buffer, out: Buffer },
    /// Computes weighted sums of rows of a table.
    Interpolate { table: EmbeddingTable, taps: usize, out: Buffer },
    /// Computes the softmax over the `top_k` largest logits of each row, and 0 elsewhere.
    Route { spec: RouteSpec, logits: Buffer, bias: Option<Arc<[f32]>>, out: Buffer },
    /// Does a stage of a layer of experts.
    Experts(ExpertStage, Arc<ExpertsLayer>),
}

/// An element-wise op on two operands.
#[derive(Clone, Copy)]
pub(crate) enum BinaryOp {
    Add,
    Mul,
    Div,
}

/// The frequencies of a table of angles, and the positions that they belong to.
#[derive(Clone, PartialEq)]
pub(crate) struct Angles {
    pub frequencies: Arc<[f32]>,
    pub axes: RopeAxes,
}

/// The use that [`Task::MixRows`] makes of the step's rows.
#[derive(Clone, Copy)]
pub(crate) enum MixRows {
    Place {
        /// Whether only rows whose element before the first one is not 0 are placed.
        marked: bool,
    },
    Add,
}

/// The second operand of an element-wise op.
pub(crate) enum RightOperand {
    /// One row for all rows.
    Row(Arc<[f32]>),
    /// A row for each row.
    Rows(Buffer),
}

/// The factor of a row, `1 + scale ln(1 + floor((position + offset) / interval))`.
#[derive(Clone, Copy)]
pub(crate) struct Temper {
    pub scale: f32,
    pub interval: usize,
    pub offset: usize,
}

/// The parts of a row that [`Task::Slice`] copies: of every `stride` elements, `len` from `offset`
/// on.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    pub offset: usize,
    pub len: usize,
    pub stride: usize,
}

/// The operands of a sum, and of its RMS norm.
pub(crate) struct AddRmsNorm {
    pub a: Buffer,
    pub b: Buffer,
    pub w: Arc<[f32]>,
    pub eps: f32,
    pub sum: Buffer,
    pub out: Buffer,
}

/// The operands of layer norms of groups of elements.
pub(crate) struct LayerNorm {
    pub x: Buffer,
    pub w: Arc<[f32]>,
    pub b: Arc<[f32]>,
    pub eps: f32,
    /// The number of groups of a row.
    pub groups: usize,
    pub out: Buffer,
}

/// The operands of a short convolution.
pub(crate) struct ShortConv {
    pub spec: ConvSpec,
    pub x: Buffer,
    /// `[kernel, channels]`.
    pub w: Arc<[f32]>,
    pub bias: Option<Arc<[f32]>>,
    pub out: Buffer,
}

/// The operands of a state-space scan.
pub(crate) struct StateScan {
    pub spec: ScanSpec,
    pub x: Buffer,
    pub dt: Buffer,
    pub a: Arc<[f32]>,
    pub bias: Arc<[f32]>,
    pub d: Arc<[f32]>,
    pub out: Buffer,
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

/// The op that follows a product in the same task.
pub(crate) enum Epilogue {
    /// Stores the product of each matrix in its own buffer.
    Store,
    /// Adds the product to this buffer.
    Add(Buffer),
    /// Activates the first matrix's product, and multiplies it with the second's.
    Glu(Activation),
}

/// The products of one operand with matrices.
pub(crate) struct Product {
    pub x: Buffer,
    /// The parts of a row that are each multiplied with their own matrix of a stack; 1 for whole
    /// rows.
    pub heads: usize,
    pub matrices: Vec<Arc<Matrix>>,
    pub epilogue: Epilogue,
    pub outs: Vec<Buffer>,
}

/// A group of rows of one of several matrices.
#[derive(Clone, Copy)]
pub(crate) struct MatrixGroup {
    /// The number of the matrix.
    pub matrix: usize,
    /// The group within the matrix.
    pub group: usize,
}

impl Product {
    /// Returns the number of groups of sixteen rows: of all matrices or, where two matrices
    /// are multiplied together, of one.
    pub fn groups(&self) -> usize {
        match self.epilogue {
            Epilogue::Store => self.matrices.iter().map(|matrix| matrix.groups()).sum(),
            Epilogue::Add(_) | Epilogue::Glu(_) => self.matrices[0].groups(),
        }
    }

    /// Returns the matrix and the group of group `index` of all matrices.
    pub fn locate(&self, index: usize) -> MatrixGroup {
        let mut place = MatrixGroup { matrix: 0, group: index };
        while place.group >= self.matrices[place.matrix].groups() {
            place.group -= self.matrices[place.matrix].groups();
            place.matrix += 1;
        }
        place
    }

    /// Returns the number of tokens that are multiplied with all groups before the next tokens are,
    /// so that their operands stay in the second-level cache.
    pub fn tokens_in_block(&self) -> usize {
        const BLOCK_BYTES: usize = 384 << 10;
        const LEAST: usize = 16;
        let quantized = self.matrices.iter().any(|matrix| matrix.is_quantized());
        let element = if quantized { size_of::<i8>() } else { size_of::<f32>() };
        (BLOCK_BYTES / (element * self.x.width / self.heads)).max(LEAST).next_multiple_of(LEAST)
    }

    /// Returns the number of groups that a thread takes at a time.
    pub fn groups_at_once(&self, tokens: usize) -> usize {
        groups_at_once(self.groups(), self.matrices.iter().map(|matrix| matrix.bytes()).sum(), tokens)
    }
}

/// Returns the number of groups that a thread takes at a time, of `groups` with `bytes` bytes in
/// total: with few tokens, enough to read memory in long stretches.
pub(crate) fn groups_at_once(groups: usize, bytes: usize, tokens: usize) -> usize {
    const STRETCH_BYTES: usize = 32 << 10;
    (STRETCH_BYTES * groups / (tokens * bytes).max(1)).max(1)
}

impl Task {
    /// Returns the rows that the task divides among the threads; `None` if it divides other work.
    fn rows(&self) -> Option<Rows> {
        match self {
            Self::Embed { .. } | Self::Angles { .. } | Self::InputRows { .. } | Self::Interpolate { .. } => {
                Some(Rows::Tokens)
            }
            Self::Quantize { x, .. } => Some(x.rows),
            Self::Binary { out, .. }
            | Self::Activate { out, .. }
            | Self::SoftCap { out, .. }
            | Self::Clamp { out, .. }
            | Self::Concat { out, .. }
            | Self::MixRows { out, .. }
            | Self::Temper { out, .. }
            | Self::MixStreams { out, .. }
            | Self::Deviation { out, .. }
            | Self::Slice { out, .. }
            | Self::RmsNorm { out, .. }
            | Self::AddRmsNorm(AddRmsNorm { out, .. })
            | Self::LayerNorm(LayerNorm { out, .. })
            | Self::Rope { out, .. }
            | Self::Route { out, .. } => Some(out.rows),
            Self::Experts(ExpertStage::Sum, layer) => Some(layer.out.rows),
            Self::Experts(..)
            | Self::Product(_)
            | Self::Append { .. }
            | Self::Attend { .. }
            | Self::ShortConv(_)
            | Self::GatedDelta(_)
            | Self::StateScan(_)
            | Self::Select { .. }
            | Self::JoinRows { .. } => None,
        }
    }

    /// Returns whether the threads must meet between this task and the task `next`.
    pub fn needs_barrier_before(&self, next: &Self) -> bool {
        self.rows().is_none() || self.rows() != next.rows()
    }

    /// Returns the bytes of weights or cache that the task reads in a step of `runs` runs, or 0 if
    /// reading does not bound its time. `positions` gives the positions that all runs see through a
    /// window, and `active_experts` the experts of a layer that have tokens.
    pub fn bytes_read(
        &self,
        cache: &CacheLayout,
        runs: usize,
        positions: impl Fn(Option<Window>) -> usize,
        active_experts: impl Fn(&ExpertsLayer) -> usize,
    ) -> usize {
        match self {
            Self::Product(product) => product.matrices.iter().map(|matrix| matrix.bytes()).sum(),
            Self::Experts(stage, layer) => active_experts(layer) * layer.bytes_per_expert(*stage),
            Self::Attend { spec, .. } => cache.layers[spec.layer].position_bytes() * positions(spec.scores.window),
            Self::GatedDelta(GatedDelta { spec: DeltaSpec { state, .. }, .. })
            | Self::StateScan(StateScan { spec: ScanSpec { state, .. }, .. }) => {
                let state = cache.states[*state];
                size_of::<f32>() * state.rows * state.width * runs
            }
            Self::Embed { .. }
            | Self::Angles { .. }
            | Self::Quantize { .. }
            | Self::Binary { .. }
            | Self::Activate { .. }
            | Self::SoftCap { .. }
            | Self::Clamp { .. }
            | Self::Concat { .. }
            | Self::LayerNorm(_)
            | Self::JoinRows { .. }
            | Self::InputRows { .. }
            | Self::MixRows { .. }
            | Self::Temper { .. }
            | Self::Interpolate { .. }
            | Self::MixStreams { .. }
            | Self::Deviation { .. }
            | Self::Slice { .. }
            | Self::RmsNorm { .. }
            | Self::AddRmsNorm(_)
            | Self::Rope { .. }
            | Self::Append { .. }
            | Self::ShortConv(_)
            | Self::Select { .. }
            | Self::Route { .. } => 0,
        }
    }
}
