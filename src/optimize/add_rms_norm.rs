//! In: a sum whose rows are normed next. Out: one op with both results, which spares the sum a read.

use std::collections::HashMap;

use super::{Pass, Target};
use crate::{
    Result,
    graph::{Graph, Node, Op, Rewriter, Rows, Shape, ValueId},
};

/// A sum and its norm become one op with both for results, so that the norm finds the sum at hand.
#[derive(Debug)]
pub struct AddRmsNorm;

impl Pass for AddRmsNorm {
    fn name(&self) -> &'static str {
        "add_rms_norm"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let norms = norms(graph);
        let mut rewriter = Rewriter::new(graph);
        let mut rewrites = 0;
        for (index, node) in graph.nodes().iter().enumerate() {
            let found = sum_with_norm(graph, &norms, node).filter(|(op, _)| (target.supports)(op));
            let Some((op, norm)) = found else {
                rewriter.copy(index);
                continue;
            };
            let inputs = rewriter.renamed_all(&[node.inputs[0], node.inputs[1], norm.inputs[1]]);
            rewriter.fuse(op, &inputs, &[node.outputs[0], norm.outputs[0]]);
            rewrites += 1;
        }
        Ok((rewriter.finish()?, rewrites))
    }
}

/// The first norm over the whole row of each value that has one.
pub(super) fn norms(graph: &Graph) -> HashMap<ValueId, &Node> {
    let mut norms = HashMap::new();
    for node in graph.nodes() {
        if let (Op::RmsNorm { .. }, [x, w]) = (&node.op, node.inputs.as_slice())
            && graph.shape(*w) == Shape::new(Rows::Fixed(1), graph.shape(*x).width)
        {
            norms.entry(*x).or_insert(node);
        }
    }
    norms
}

/// The fused op and the norm, where `node` adds two of one shape and the sum is normed.
fn sum_with_norm<'g>(graph: &Graph, norms: &HashMap<ValueId, &'g Node>, node: &Node) -> Option<(Op, &'g Node)> {
    if node.op != Op::Add || graph.shape(node.inputs[0]) != graph.shape(node.inputs[1]) {
        return None;
    }
    let norm = *norms.get(&node.outputs[0])?;
    match norm.op {
        Op::RmsNorm { eps } => Some((Op::AddRmsNorm { eps }, norm)),
        _ => None,
    }
}
