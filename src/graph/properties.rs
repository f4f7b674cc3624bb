//! Lists the properties of each op that passes, plans and backends depend on, one row per op.

use std::ops::Range;

use super::{Activation, AttentionSpec, FusedOp, LayerState, Op, RopeAxes};

/// The number of results of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// One result.
    One,
    /// Two results.
    Two,
    /// One result for each operand after the first.
    PerMatrix,
}

/// The operands of an op that are matrices `[n, k]` to multiply with, which a backend may keep
/// packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrices {
    /// No operand.
    None,
    /// The operand with this number.
    At(usize),
    /// This operand and all after it.
    From(usize),
}

/// One op's row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct OpProperties {
    /// The name in dumps, profiles and messages.
    pub name: &'static str,
    /// Each row of the results depends only on the same row of the operands, at any position.
    pub row_wise: bool,
    /// The results depend on the operands alone and no cache or state changes, so two equal nodes
    /// can become one.
    pub pure: bool,
    /// The operand whose memory the first result may overwrite if no later op reads that operand.
    pub in_place: Option<usize>,
    /// The number of results.
    pub results: Results,
    /// The operands that are matrices to multiply with.
    pub matrices: Matrices,
    /// The operand that holds rotary frequencies.
    pub frequencies: Option<usize>,
    /// The positions that turn pairs by these frequencies.
    pub axes: RopeAxes,
    /// The operand that is a table, of which the op reads rows that the step names.
    pub table: Option<usize>,
    /// The recurrent state: its number in [`Graph::states`](super::Graph::states) and its size.
    pub state: Option<(usize, LayerState)>,
    /// The attention that the op computes over a layer of the key-value cache.
    pub attention: Option<AttentionSpec>,
    /// The part of the step's inputs that the op reads besides tokens, runs and outputs.
    pub input: Option<StepInput>,
}

/// A part of a step's inputs that single ops read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepInput {
    /// The rows that the step gives for tokens, from the element `first` on.
    Rows {
        /// The first element.
        first: usize,
    },
    /// The set of taps with this number, for the table that is the first operand.
    Taps(usize),
    /// For each output the rows of this number of tokens.
    Following(usize),
}

/// An op that moves or mixes rows and has one result.
const PURE: OpProperties = OpProperties {
    name: "",
    row_wise: false,
    pure: true,
    in_place: None,
    results: Results::One,
    matrices: Matrices::None,
    frequencies: None,
    axes: RopeAxes::First,
    table: None,
    state: None,
    attention: None,
    input: None,
};

/// A row-wise op that cannot overwrite an operand.
const ROW_WISE: OpProperties = OpProperties { row_wise: true, ..PURE };

/// A row-wise op whose result may overwrite the first operand.
const IN_PLACE: OpProperties = OpProperties { in_place: Some(0), ..ROW_WISE };

/// An op that changes a cache or a state.
const STATEFUL: OpProperties = OpProperties { pure: false, ..PURE };

/// Returns the properties of an op that puts or adds the step's rows to its operand.
fn mixes_rows(first: usize) -> OpProperties {
    OpProperties { in_place: Some(0), input: Some(StepInput::Rows { first }), ..PURE }
}

impl Op {
    /// Returns the op's properties.
    pub fn properties(&self) -> OpProperties {
        match self {
            Self::Embed => OpProperties { name: "embed", table: Some(0), ..PURE },
            Self::MatMul => OpProperties { name: "matmul", matrices: Matrices::From(1), ..ROW_WISE },
            Self::MatMulHeads { .. } => OpProperties { name: "matmul_heads", matrices: Matrices::From(1), ..ROW_WISE },
            Self::Add => OpProperties { name: "add", ..IN_PLACE },
            Self::Mul => OpProperties { name: "mul", ..IN_PLACE },
            Self::Div => OpProperties { name: "div", ..IN_PLACE },
            Self::Activate(activation) => OpProperties { name: activation.name(), ..IN_PLACE },
            Self::SoftCap { .. } => OpProperties { name: "soft_cap", ..IN_PLACE },
            Self::Clamp => OpProperties { name: "clamp", ..IN_PLACE },
            Self::Concat { .. } => OpProperties { name: "concat", ..ROW_WISE },
            Self::MixStreams { .. } => OpProperties { name: "mix_streams", ..ROW_WISE },
            Self::Deviation { .. } => OpProperties { name: "deviation", ..ROW_WISE },
            Self::Slice { .. } => OpProperties { name: "slice", ..ROW_WISE },
            Self::RmsNorm { .. } => OpProperties { name: "rms_norm", ..IN_PLACE },
            Self::LayerNorm { .. } => OpProperties { name: "layer_norm", ..IN_PLACE },
            Self::Rope(spec) => {
                OpProperties { name: "rope", in_place: Some(0), frequencies: Some(1), axes: spec.axes, ..PURE }
            }
            Self::Attention(spec) => OpProperties { name: "attention", attention: Some(*spec), ..STATEFUL },
            Self::ShortConv(spec) => {
                OpProperties { name: "short_conv", state: Some((spec.state, spec.layer_state())), ..STATEFUL }
            }
            Self::GatedDelta(spec) => {
                OpProperties { name: "gated_delta", state: Some((spec.state, spec.layer_state())), ..STATEFUL }
            }
            Self::StateScan(spec) => {
                OpProperties { name: "state_scan", state: Some((spec.state, spec.layer_state())), ..STATEFUL }
            }
            Self::SelectOutputs => OpProperties { name: "select_outputs", ..PURE },
            Self::JoinRows { count } => {
                OpProperties { name: "join_rows", input: Some(StepInput::Following(*count)), ..PURE }
            }
            Self::InputRows { .. } => {
                OpProperties { name: "input_rows", input: Some(StepInput::Rows { first: 0 }), ..PURE }
            }
            Self::PlaceRows { first, .. } => OpProperties { name: "place_rows", ..mixes_rows(*first) },
            Self::AddRows { first } => OpProperties { name: "add_rows", ..mixes_rows(*first) },
            Self::Temper { .. } => OpProperties { name: "temper", in_place: Some(0), ..PURE },
            Self::Interpolate { taps } => {
                OpProperties { name: "interpolate", table: Some(0), input: Some(StepInput::Taps(*taps)), ..PURE }
            }
            Self::Route(_) => OpProperties { name: "route", ..ROW_WISE },
            Self::Experts(spec) => {
                let matrices = Matrices::From(2 + usize::from(spec.biased));
                OpProperties { name: "experts", matrices, ..ROW_WISE }
            }
            Self::Fused(op) => op.properties(),
        }
    }

    /// Returns the op's name in dumps, profiles and messages.
    pub fn name(&self) -> &'static str {
        self.properties().name
    }

    /// Returns the fused op, or `None` for a plain op.
    pub fn fused(&self) -> Option<&FusedOp> {
        if let Self::Fused(op) = self { Some(op) } else { None }
    }
}

impl FusedOp {
    /// Returns the op's properties.
    pub fn properties(&self) -> OpProperties {
        match self {
            Self::MatMulJoined => OpProperties {
                name: "matmul_joined",
                results: Results::PerMatrix,
                matrices: Matrices::From(1),
                ..ROW_WISE
            },
            Self::MatMulGlu(activation) => {
                OpProperties { name: glu_name(*activation), matrices: Matrices::From(1), ..ROW_WISE }
            }
            Self::MatMulAdd => {
                OpProperties { name: "matmul_add", in_place: Some(2), matrices: Matrices::At(1), ..ROW_WISE }
            }
            Self::AddRmsNorm { .. } => OpProperties { name: "add_rms_norm", results: Results::Two, ..IN_PLACE },
            Self::MatMulAddRmsNorm { .. } => OpProperties {
                name: "matmul_add_rms_norm",
                in_place: Some(2),
                results: Results::Two,
                matrices: Matrices::At(1),
                ..ROW_WISE
            },
            Self::Gated { .. } => OpProperties { name: "gated", ..ROW_WISE },
            Self::RotatedAttention { attention, rope, .. } => OpProperties {
                name: "rotated_attention",
                frequencies: Some(3),
                axes: rope.axes,
                attention: Some(*attention),
                ..STATEFUL
            },
        }
    }

    /// Returns the op's name in dumps, profiles and messages.
    pub fn name(&self) -> &'static str {
        self.properties().name
    }
}

impl OpProperties {
    /// Returns the positions of the matrices among `operands` operands.
    pub fn matrices_of(&self, operands: usize) -> Range<usize> {
        match self.matrices {
            Matrices::None => 0..0,
            Matrices::At(index) => index..index + 1,
            Matrices::From(index) => index..operands,
        }
    }

    /// Returns the number of results for `operands` operands.
    pub(super) fn result_count(&self, operands: usize) -> usize {
        match self.results {
            Results::One => 1,
            Results::Two => 2,
            Results::PerMatrix => operands.saturating_sub(1),
        }
    }
}

impl Activation {
    /// Returns the function's name in dumps and profiles.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::Gelu => "gelu",
            Self::GeluErf => "gelu_erf",
            Self::QuickGelu => "quick_gelu",
            Self::Sigmoid => "sigmoid",
            Self::Relu => "relu",
            Self::SquaredRelu => "squared_relu",
        }
    }
}

/// Returns the name of the gated linear unit with this activation.
fn glu_name(activation: Activation) -> &'static str {
    match activation {
        Activation::Silu => "matmul_swiglu",
        Activation::Gelu => "matmul_geglu",
        Activation::GeluErf => "matmul_geglu_erf",
        Activation::QuickGelu => "matmul_quick_geglu",
        Activation::Sigmoid => "matmul_glu",
        Activation::Relu => "matmul_reglu",
        Activation::SquaredRelu => "matmul_squared_reglu",
    }
}
