//! The computation of one step, as a list of nodes over values.
//!
//! In: calls of a model's `build` on the [`Builder`]. Out: a [`Graph`], which passes rewrite and a plan orders into
//! buffers. Every value is a matrix `[rows, width]` and the only symbolic size is its number of rows, so one graph
//! serves prefill, decode and ragged batches at every length; positions and cache lengths are run-time values of the
//! step. Heads are attributes of the ops that know them, not a dimension.

mod attention;
mod builder;
mod dump;
mod experts;
mod fused;
mod infer;
mod op;
mod properties;
mod recurrent;
mod rewrite;
mod verify;

use std::sync::Arc;

pub use attention::{AttentionSpec, RopeSpec, RopeStyle, Scores};
pub use builder::Builder;
pub use experts::ExpertsSpec;
pub use fused::FusedOp;
pub use op::{Activation, Op};
pub use properties::{Matrices, OpProperties, Results};
pub use recurrent::{ConvSpec, DeltaSpec, HeadOrder, LayerState, RECURRENT_UNIT};
pub use rewrite::Rewriter;

use crate::{DType, Result, weights::TensorSlice};

/// How many rows a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// A number that is known when the graph is built: weights and constants.
    Fixed(usize),
    /// One row for each token of the step.
    Tokens,
    /// One row for each token whose logits the step wants.
    Outputs,
}

/// A value's shape, `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The number of rows.
    pub rows: Rows,
    /// Elements in a row.
    pub width: usize,
}

impl Shape {
    /// The shape `[rows, width]`.
    pub fn new(rows: Rows, width: usize) -> Self {
        Self { rows, width }
    }
}

/// Names a value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(u32);

impl ValueId {
    /// Its position in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The step's token ids, `[Tokens, 1]`.
    Tokens,
    /// A tensor of the model, or some of its rows: a matrix `[rows, columns]`, or a vector as one row.
    Weight {
        /// The tensor's name in the file, and the rows.
        slice: TensorSlice,
        /// The format of its elements.
        dtype: DType,
    },
    /// Numbers known when the graph is built, row by row.
    Constant(Arc<[f32]>),
    /// An output of a node.
    Node {
        /// The node's position in [`Graph::nodes`].
        node: usize,
        /// Which of its outputs.
        output: usize,
    },
}

/// A value: its shape and where it comes from.
#[derive(Clone, Debug)]
pub struct Value {
    /// `[rows, width]`.
    pub shape: Shape,
    /// Where it comes from.
    pub source: Source,
}

/// An op applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Its operands, in the op's order.
    pub inputs: Vec<ValueId>,
    /// Its results, in the op's order.
    pub outputs: Vec<ValueId>,
}

/// What one attention layer keeps for each position of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerCache {
    /// Key-value heads.
    pub kv_heads: usize,
    /// Elements of a key, and of a value, in one head.
    pub head_dim: usize,
}

/// The computation of one step.
///
/// Nodes stand in an order in which every operand precedes its use; `verify` holds a graph to this and to the shapes
/// that each op demands.
#[derive(Clone, Debug)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    caches: Vec<LayerCache>,
    states: Vec<LayerState>,
    logits: ValueId,
}

impl Graph {
    /// All values, in order of definition.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All nodes, each after those it depends on.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What each attention layer keeps, by the layer number that its op names.
    pub fn caches(&self) -> &[LayerCache] {
        &self.caches
    }

    /// How many positions of each attention layer's cache a token sees at most, the last of them its own; all up to it where
    /// there is no such number.
    pub fn windows(&self) -> Vec<Option<usize>> {
        let mut windows = vec![Some(1); self.caches.len()];
        for spec in self.nodes.iter().filter_map(|node| node.op.properties().attention) {
            let widest = &mut windows[spec.layer];
            *widest = widest.zip(spec.scores.window).map(|(a, b)| a.max(b));
        }
        windows
    }

    /// What each recurrent op keeps, by the state number that it names.
    pub fn states(&self) -> &[LayerState] {
        &self.states
    }

    /// The result, `[Outputs, vocabulary]`.
    pub fn logits(&self) -> ValueId {
        self.logits
    }

    /// The value with this id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The shape of the value with this id.
    pub fn shape(&self, id: ValueId) -> Shape {
        self.value(id).shape
    }

    /// The names of all values, in order of definition.
    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// The position of the node that makes this value; `None` for weights, constants and the tokens.
    pub fn producer_index(&self, id: ValueId) -> Option<usize> {
        match self.value(id).source {
            Source::Node { node, .. } => Some(node),
            Source::Tokens | Source::Weight { .. } | Source::Constant(_) => None,
        }
    }

    /// The node that makes this value; `None` for weights, constants and the tokens.
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        self.producer_index(id).and_then(|node| self.nodes.get(node))
    }

    /// How many nodes read each value, by value; the logits count as read once.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.values.len()];
        for id in self.nodes.iter().flat_map(|node| &node.inputs) {
            uses[id.index()] += 1;
        }
        uses[self.logits.index()] += 1;
        uses
    }

    /// Checks every invariant: order, operand counts, shapes, and one cache layer or state for each op that keeps one.
    ///
    /// # Errors
    /// [`Error::Graph`](crate::Error::Graph) that names the first value or node that breaks one.
    pub fn verify(&self) -> Result<()> {
        verify::verify(self)
    }
}
