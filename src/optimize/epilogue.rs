//! In: a product that is added to a residual. Out: one op, which spares the product its way through memory.

use super::{Pass, Target, sole_product};
use crate::{
    Result,
    graph::{Graph, Node, Op, Rewriter, ValueId},
};

/// `residual + x w^T`, in either order, becomes one op: the product adds onto the residual as it writes.
#[derive(Debug)]
pub struct Epilogue;

impl Pass for Epilogue {
    fn name(&self) -> &'static str {
        "epilogue"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let uses = graph.uses();
        let mut rewriter = Rewriter::new(graph);
        let mut rewrites = 0;
        for (index, node) in graph.nodes().iter().enumerate() {
            let found = sum_with_product(graph, &uses, node).filter(|_| (target.supports)(&Op::MatMulAdd));
            let Some(inputs) = found else {
                rewriter.copy(index);
                continue;
            };
            let inputs = rewriter.renamed_all(&inputs);
            rewriter.fuse(Op::MatMulAdd, &inputs, &node.outputs);
            rewrites += 1;
        }
        Ok((rewriter.finish()?, rewrites))
    }
}

/// The product's input, its matrix and the residual, where `node` adds the two. A bias, one row for all, is no residual.
fn sum_with_product(graph: &Graph, uses: &[usize], node: &Node) -> Option<[ValueId; 3]> {
    if node.op != Op::Add || graph.shape(node.inputs[0]) != graph.shape(node.inputs[1]) {
        return None;
    }
    let (a, b) = (node.inputs[0], node.inputs[1]);
    // The second first: a residual is written `x + f(x)`, so the later of two products is the second.
    [(a, b), (b, a)]
        .into_iter()
        .find_map(|(residual, product)| sole_product(graph, uses, product).map(|(x, w)| [x, w, residual]))
}
