//! In: two products of one input, one activated, multiplied. Out: one op that writes neither product to memory.

use super::{Pass, Target, sole_product, sole_use};
use crate::{
    Result,
    graph::{Graph, Node, Op, Rewriter, ValueId},
};

/// `f(x gate^T) * (x up^T)`, in either order, becomes one op ([Shazeer 2020](https://arxiv.org/abs/2002.05202)).
#[derive(Debug)]
pub struct Glu;

impl Pass for Glu {
    fn name(&self) -> &'static str {
        "glu"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let uses = graph.uses();
        let mut rewriter = Rewriter::new(graph);
        let mut rewrites = 0;
        for (index, node) in graph.nodes().iter().enumerate() {
            let found = gated(graph, &uses, node).filter(|(op, _)| (target.supports)(op));
            let Some((op, inputs)) = found else {
                rewriter.copy(index);
                continue;
            };
            let inputs = rewriter.renamed_all(&inputs);
            rewriter.fuse(op, &inputs, &node.outputs);
            rewrites += 1;
        }
        Ok((rewriter.finish()?, rewrites))
    }
}

/// The fused op and its operands, where `node` ends the pattern.
fn gated(graph: &Graph, uses: &[usize], node: &Node) -> Option<(Op, [ValueId; 3])> {
    if node.op != Op::Mul {
        return None;
    }
    let (a, b) = (node.inputs[0], node.inputs[1]);
    [(a, b), (b, a)].into_iter().find_map(|(gated, up)| {
        let Node { op: Op::Activate(activation), inputs, .. } = sole_use(graph, uses, gated)? else { return None };
        let (x, gate) = sole_product(graph, uses, inputs[0])?;
        let (also_x, up) = sole_product(graph, uses, up)?;
        (x == also_x && graph.shape(gate) == graph.shape(up)).then_some((Op::MatMulGlu(*activation), [x, gate, up]))
    })
}
