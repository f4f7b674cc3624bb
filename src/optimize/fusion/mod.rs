//! Passes that each replace a pattern of plain ops by one fused op.

mod add_norm;
mod gated;
mod glu;
mod matmul_add;
mod matmul_add_norm;
mod rotated_attention;

use std::collections::HashMap;

pub use add_norm::AddNormFusion;
pub use gated::GatedFusion;
pub use glu::GluFusion;
pub use matmul_add::MatMulAddFusion;
pub use matmul_add_norm::MatMulAddNormFusion;
pub use rotated_attention::RotatedAttentionFusion;

use super::Target;
use crate::{
    Result,
    graph::{FusedOp, Graph, Node, Op, Rewriter, Rows, Shape, ValueId},
};

/// A fused op in the place of a pattern of nodes.
struct Fusion {
    op: FusedOp,
    /// The operands, values of the graph before the rewrite.
    inputs: Vec<ValueId>,
    /// The values that the results of the op replace.
    replaced: Vec<ValueId>,
}

/// Replaces each pattern that `find` recognizes by its last (or, with two results, first) node, if
/// the backend has the fused op. Returns the rewritten graph and the number of fusions.
fn fuse(graph: &Graph, target: &Target<'_>, find: impl Fn(&Node) -> Option<Fusion>) -> Result<(Graph, usize)> {
    let mut rewriter = Rewriter::new(graph);
    let mut rewrites = 0;
    for (index, node) in graph.nodes().iter().enumerate() {
        match find(node).filter(|fusion| (target.supports)(&fusion.op)) {
            Some(Fusion { op, inputs, replaced }) => {
                let inputs = rewriter.renamed_all(&inputs);
                rewriter.fuse(op, &inputs, &replaced);
                rewrites += 1;
            }
            None => drop(rewriter.copy(index)),
        }
    }
    Ok((rewriter.finish()?, rewrites))
}

/// Returns the node that makes a value with exactly one reader: such a node can become part of its
/// reader.
fn sole_use<'g>(graph: &'g Graph, uses: &[usize], id: ValueId) -> Option<&'g Node> {
    graph.producer(id).filter(|_| uses[id.index()] == 1)
}

/// Returns the input and the matrix of the product that makes a value with exactly one reader.
fn sole_product(graph: &Graph, uses: &[usize], id: ValueId) -> Option<(ValueId, ValueId)> {
    let node = sole_use(graph, uses, id)?;
    (node.op == Op::MatMul).then(|| (node.inputs[0], node.inputs[1]))
}

/// An RMS norm over whole rows.
struct RowNorm {
    weight: ValueId,
    eps: f32,
    output: ValueId,
}

/// Returns the first norm over the whole row of each value that has one.
fn row_norms(graph: &Graph) -> HashMap<ValueId, RowNorm> {
    let mut norms = HashMap::new();
    for node in graph.nodes() {
        if let (Op::RmsNorm { eps }, &[x, weight]) = (&node.op, node.inputs.as_slice())
            && graph.shape(weight) == Shape::new(Rows::Fixed(1), graph.shape(x).width)
        {
            norms.entry(x).or_insert(RowNorm { weight, eps: *eps, output: node.outputs[0] });
        }
    }
    norms
}
