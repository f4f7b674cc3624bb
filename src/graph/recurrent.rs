//! The ops that carry a state of fixed size from token to token: what they are made of, and what they keep.

use super::{Rows, Shape, infer::mismatch};

/// What one recurrent op keeps of a sequence, whatever the sequence's length: floats `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerState {
    /// The number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
}

/// The sizes of a short convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvSpec {
    /// Its state's number in [`Graph::states`](super::Graph::states): the last `kernel - 1` inputs, the latest last.
    pub state: usize,
    /// Elements of a token, each convolved by itself: a multiple of [`RECURRENT_UNIT`].
    pub channels: usize,
    /// Tokens that a result depends on, the token itself and those before it: at least 2.
    pub kernel: usize,
}

/// The sizes of a gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaSpec {
    /// Its state's number in [`Graph::states`](super::Graph::states): each value head's matrix. The order of a matrix's
    /// elements is the backend's affair.
    pub state: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of `key_heads`.
    pub value_heads: usize,
    /// Which key head a value head reads.
    pub order: HeadOrder,
    /// Elements in a head: a multiple of [`RECURRENT_UNIT`].
    pub head_dim: usize,
    /// Added to the sum of squares that queries and keys are divided by the root of.
    pub eps: f32,
}

/// How value heads lie that read the same key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadOrder {
    /// As far apart as there are key heads: value head `h` reads key head `h mod key_heads`.
    Tiled,
    /// One after the other: value head `h` reads key head `h / (value_heads / key_heads)`.
    Grouped,
}

/// What channels of a convolution and heads of a gated delta rule are multiples of, so that kernels work on whole
/// vectors.
pub const RECURRENT_UNIT: usize = 16;

impl ConvSpec {
    /// What it keeps.
    pub fn layer_state(&self) -> LayerState {
        LayerState { rows: self.kernel.saturating_sub(1), width: self.channels }
    }

    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let x = Shape::new(Rows::Tokens, self.channels);
        let w = Shape::new(Rows::Fixed(self.channels), self.kernel);
        if self.kernel < 2 {
            return Err(format!("a kernel of {} tokens keeps no state", self.kernel));
        }
        if !self.channels.is_multiple_of(RECURRENT_UNIT) {
            return Err(format!("{} channels are no multiple of {RECURRENT_UNIT}", self.channels));
        }
        if inputs == [x, w] { Ok(vec![x]) } else { Err(mismatch("x and a row of the kernel for each channel", inputs)) }
    }
}

impl HeadOrder {
    /// What a graph's text calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tiled => "tiled",
            Self::Grouped => "grouped",
        }
    }
}

impl DeltaSpec {
    /// The key head that a value head reads.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.order {
            HeadOrder::Tiled => value_head % self.key_heads,
            HeadOrder::Grouped => value_head / (self.value_heads / self.key_heads),
        }
    }

    /// What it keeps.
    pub fn layer_state(&self) -> LayerState {
        LayerState { rows: self.value_heads.saturating_mul(self.head_dim), width: self.head_dim }
    }

    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let Self { key_heads, value_heads, head_dim, .. } = *self;
        if key_heads == 0 || value_heads == 0 || !value_heads.is_multiple_of(key_heads) {
            return Err(format!("{value_heads} value heads are no multiple of {key_heads} key heads"));
        }
        if head_dim == 0 || !head_dim.is_multiple_of(RECURRENT_UNIT) {
            return Err(format!("heads of {head_dim} elements are no multiple of {RECURRENT_UNIT}"));
        }
        let heads = key_heads.saturating_mul(2).saturating_add(value_heads);
        let qkv = Shape::new(Rows::Tokens, heads.saturating_mul(head_dim));
        let gate = Shape::new(Rows::Tokens, value_heads);
        let row = Shape::new(Rows::Fixed(1), value_heads);
        if inputs == [qkv, gate, gate, row, row] {
            Ok(vec![Shape::new(Rows::Tokens, value_heads.saturating_mul(head_dim))])
        } else {
            Err(mismatch("q|k|v, alpha, beta, a and dt of the heads' widths", inputs))
        }
    }
}
