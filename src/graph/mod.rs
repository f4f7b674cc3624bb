//! Represents the computation of one step as a list of nodes over values.
//!
//! A model's `build` calls the [`Builder`], which returns a [`Graph`]. Passes rewrite the graph,
//! and a plan gives its values buffers. Every value is a matrix `[rows, width]`. Only the number of
//! rows may be symbolic, so one graph serves prefill, decode and ragged batches of every length;
//! positions and cache lengths are run-time values of the step. Heads are attributes of ops, not a
//! dimension.

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

pub use attention::{AttentionSpec, RopeAxes, RopeSpec, RopeStyle, Scores, Sees, Window};
pub use builder::Builder;
pub use experts::{ExpertGroups, ExpertScore, ExpertsSpec, Glu, RouteSpec};
pub use fused::FusedOp;
pub use infer::HEAD_UNIT;
pub use op::{Activation, Op};
pub use properties::{Matrices, OpProperties, Results, StepInput};
pub use recurrent::{ConvSpec, DeltaSpec, HeadOrder, LayerState, RECURRENT_UNIT, ScanSpec};
pub use rewrite::Rewriter;

use crate::{DType, Result, weights::TensorSlice};

/// The number of rows of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// A number that is known when the graph is built: weights and constants.
    Fixed(usize),
    /// One row for each token of the step.
    Tokens,
    /// One row for each token whose logits the step returns.
    Outputs,
}

/// A value's shape, `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The number of rows.
    pub rows: Rows,
    /// The number of elements in a row.
    pub width: usize,
}

impl Shape {
    /// Returns the shape `[rows, width]`.
    pub fn new(rows: Rows, width: usize) -> Self {
        Self { rows, width }
    }
}

/// The id of a value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(u32);

impl ValueId {
    /// Returns the value's position in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The step's token ids, `[Tokens, 1]`.
    Tokens,
    /// A tensor of the model, or some of its rows: a matrix `[rows, columns]`, or a vector as one
    /// row.
    Weight {
        /// The tensor's name in the file, and the rows.
        slice: TensorSlice,
        /// The format of its elements.
        dtype: DType,
    },
    /// One row of numbers that are known when the graph is built.
    Constant(Arc<[f32]>),
    /// A result of a node.
    Node {
        /// The node's position in [`Graph::nodes`].
        node: usize,
        /// The position of the value in [`Node::outputs`].
        output: usize,
    },
}

/// A value: its shape and its source.
#[derive(Clone, Debug)]
pub struct Value {
    /// `[rows, width]`.
    pub shape: Shape,
    /// The source.
    pub source: Source,
}

/// An op applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// The operands, in the op's order.
    pub inputs: Vec<ValueId>,
    /// The results, in the op's order.
    pub outputs: Vec<ValueId>,
}

/// The keys and values that one attention layer keeps for each position of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerCache {
    /// The number of key-value heads.
    pub kv_heads: usize,
    /// The number of elements of a key, and of a value, in one head.
    pub head_dim: usize,
    /// Whether keys are values too, so that there are no others.
    pub keys_only: bool,
}

/// The computation of one step.
///
/// Every node stands after the nodes that make its operands. [`Graph::verify`] checks the order and
/// all shapes.
#[derive(Clone, Debug)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    caches: Vec<LayerCache>,
    states: Vec<LayerState>,
    logits: ValueId,
    hidden: Option<ValueId>,
}

impl Graph {
    /// Returns all values, in order of definition.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns all nodes, each after the nodes that it depends on.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the cache layers, by [`AttentionSpec::layer`].
    pub fn caches(&self) -> &[LayerCache] {
        &self.caches
    }

    /// Returns the widest window over each cache layer; `None` for full attention, and for windows
    /// of two kinds.
    pub fn windows(&self) -> Vec<Option<Window>> {
        let mut windows = vec![None; self.caches.len()];
        for spec in self.nodes.iter().filter_map(|node| node.op.properties().attention) {
            let own = spec.scores.window;
            let widest = windows[spec.layer].get_or_insert(own);
            *widest = widest.zip(own).and_then(|(a, b)| a.joined(b));
        }
        windows.into_iter().map(|window| window.unwrap_or(Some(Window::Sliding(1)))).collect()
    }

    /// Returns the states of recurrent ops, by the number of the state in the op.
    pub fn states(&self) -> &[LayerState] {
        &self.states
    }

    /// Returns the result, `[Outputs, vocabulary]`.
    pub fn logits(&self) -> ValueId {
        self.logits
    }

    /// Returns the second result, the rows from which the logits are computed, for a graph that
    /// works together with a head that predicts further tokens: `[Tokens, width]` or
    /// `[Outputs, width]`.
    pub fn hidden(&self) -> Option<ValueId> {
        self.hidden
    }

    /// Returns the graph without its second result.
    #[must_use]
    pub fn without_hidden(self) -> Self {
        Self { hidden: None, ..self }
    }

    /// Returns the results.
    pub fn results(&self) -> impl Iterator<Item = ValueId> + use<> {
        [self.logits].into_iter().chain(self.hidden)
    }

    /// Returns the value with this id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Returns the shape of the value with this id.
    pub fn shape(&self, id: ValueId) -> Shape {
        self.value(id).shape
    }

    /// Returns the ids of all values, in order of definition.
    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// Returns the position of the node that makes a value, or `None` for weights, constants and
    /// tokens.
    pub fn producer_index(&self, id: ValueId) -> Option<usize> {
        match self.value(id).source {
            Source::Node { node, .. } => Some(node),
            Source::Tokens | Source::Weight { .. } | Source::Constant(_) => None,
        }
    }

    /// Returns the node that makes a value, or `None` for weights, constants and tokens.
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        self.producer_index(id).and_then(|node| self.nodes.get(node))
    }

    /// Returns the number of operands that each value is, by value; a result has one more use.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.values.len()];
        for id in self.nodes.iter().flat_map(|node| &node.inputs) {
            uses[id.index()] += 1;
        }
        self.results().for_each(|id| uses[id.index()] += 1);
        uses
    }

    /// Checks the invariants: the order of nodes, the number and shapes of operands, and one cache
    /// layer or state for each op that changes one.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) that names the first value or node that is not
    /// valid.
    pub fn verify(&self) -> Result<()> {
        verify::verify(self)
    }
}
