//! Defines the attributes and states of recurrent ops, which carry a state of fixed size from token
//! to token, and infers the shapes of their results.

use super::{Rows, Shape, infer::mismatch};

/// The state that one recurrent op keeps of a sequence of any length: f32, `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerState {
    /// The number of rows.
    pub rows: usize,
    /// The number of elements in a row.
    pub width: usize,
}

/// The attributes of a short convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvSpec {
    /// The number of the state in [`Graph::states`](super::Graph::states): the last `kernel - 1`
    /// inputs, the latest last.
    pub state: usize,
    /// The number of elements of a token, each convolved separately: a multiple of
    /// [`RECURRENT_UNIT`].
    pub channels: usize,
    /// The number of tokens that a result depends on, the token itself included: at least 2.
    pub kernel: usize,
    /// Whether the result is SiLU of the convolution, rather than the convolution itself.
    pub silu: bool,
}

/// The attributes of a gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaSpec {
    /// The number of the state in [`Graph::states`](super::Graph::states): a matrix for each value
    /// head. Backends choose the order of a matrix's elements.
    pub state: usize,
    /// The number of query heads, and of key heads.
    pub key_heads: usize,
    /// The number of value heads, a multiple of `key_heads`.
    pub value_heads: usize,
    /// The assignment of value heads to key heads.
    pub order: HeadOrder,
    /// The number of elements in a head: a multiple of [`RECURRENT_UNIT`].
    pub head_dim: usize,
    /// The number added to the sum of squares whose root divides queries and keys.
    pub eps: f32,
}

/// The attributes of a state-space scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanSpec {
    /// The number of the state in [`Graph::states`](super::Graph::states): a matrix for each head.
    pub state: usize,
    /// The number of heads.
    pub heads: usize,
    /// The number of groups, a divisor of `heads`; head `h` reads group `h / (heads / groups)`.
    pub groups: usize,
    /// The number of elements in a head; all heads together have a multiple of [`RECURRENT_UNIT`].
    pub head_dim: usize,
    /// The number of columns of a head's state: a multiple of [`RECURRENT_UNIT`].
    pub size: usize,
}

/// The assignment of value heads to key heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadOrder {
    /// Value head `h` reads key head `h mod key_heads`.
    Tiled,
    /// Value head `h` reads key head `h / (value_heads / key_heads)`.
    Grouped,
}

/// The divisor of the channels of a convolution, of the heads of a gated delta rule and of the
/// columns of a state-space scan, in elements, so that kernels work on whole vectors.
pub const RECURRENT_UNIT: usize = 16;

impl ConvSpec {
    /// Returns the size of the state.
    pub fn layer_state(&self) -> LayerState {
        LayerState { rows: self.kernel.saturating_sub(1), width: self.channels }
    }

    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let x = Shape::new(Rows::Tokens, self.channels);
        let w = Shape::new(Rows::Fixed(self.channels), self.kernel);
        if self.kernel < 2 {
            return Err(format!("has a kernel of {} tokens, but needs at least 2", self.kernel));
        }
        if !self.channels.is_multiple_of(RECURRENT_UNIT) {
            return Err(format!("has {} channels, but needs a multiple of {RECURRENT_UNIT}", self.channels));
        }
        let bias = Shape::new(Rows::Fixed(1), self.channels);
        if inputs == [x, w] || inputs == [x, w, bias] {
            Ok(vec![x])
        } else {
            Err(mismatch("x, a kernel with a row for each channel, and a bias of each or none", inputs))
        }
    }
}

impl HeadOrder {
    /// Returns the name in dumps.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tiled => "tiled",
            Self::Grouped => "grouped",
        }
    }
}

impl DeltaSpec {
    /// Returns the key head that a value head reads.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.order {
            HeadOrder::Tiled => value_head % self.key_heads,
            HeadOrder::Grouped => value_head / (self.value_heads / self.key_heads),
        }
    }

    /// Returns the size of the state.
    pub fn layer_state(&self) -> LayerState {
        LayerState { rows: self.value_heads.saturating_mul(self.head_dim), width: self.head_dim }
    }

    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let Self { key_heads, value_heads, head_dim, .. } = *self;
        if key_heads == 0 || value_heads == 0 || !value_heads.is_multiple_of(key_heads) {
            return Err(format!("has {value_heads} value heads, but needs a multiple of the {key_heads} key heads"));
        }
        if head_dim == 0 || !head_dim.is_multiple_of(RECURRENT_UNIT) {
            return Err(format!("has heads of {head_dim} elements, but needs a multiple of {RECURRENT_UNIT}"));
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

impl ScanSpec {
    /// Returns the size of the state.
    pub fn layer_state(&self) -> LayerState {
        LayerState { rows: self.heads.saturating_mul(self.head_dim), width: self.size }
    }

    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let Self { heads, groups, head_dim, size, .. } = *self;
        if groups == 0 || heads == 0 || !heads.is_multiple_of(groups) {
            return Err(format!("has {heads} heads, but needs a multiple of the {groups} groups"));
        }
        let width = heads.saturating_mul(head_dim);
        for elements in [width, size] {
            if elements == 0 || !elements.is_multiple_of(RECURRENT_UNIT) {
                return Err(format!("has {elements} elements, but needs a multiple of {RECURRENT_UNIT}"));
            }
        }
        let all = width.saturating_add(groups.saturating_mul(2).saturating_mul(size));
        let row = Shape::new(Rows::Fixed(1), heads);
        if inputs == [Shape::new(Rows::Tokens, all), Shape::new(Rows::Tokens, heads), row, row, row] {
            Ok(vec![Shape::new(Rows::Tokens, width)])
        } else {
            Err(mismatch("x|B|C, dt, a, its bias and d of the heads' widths", inputs))
        }
    }
}
