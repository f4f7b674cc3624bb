use std::collections::HashMap;

use super::{Pass, Target};
use crate::{
    Result,
    graph::{FusedOp, Graph, Op, Rewriter, Source, ValueId},
};

/// Merges products of one input with several weights, such as Q, K and V, into one op: the input is
/// quantized once, and the threads divide all rows at once. The products need not be adjacent.
#[derive(Debug)]
pub struct MergeMatMuls;

impl Pass for MergeMatMuls {
    fn name(&self) -> &'static str {
        "merge_matmuls"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let op = FusedOp::MatMulJoined;
        let groups = if (target.supports)(&op) { products_by_input(graph) } else { HashMap::new() };
        let mut rewriter = Rewriter::new(graph);
        for (index, node) in graph.nodes().iter().enumerate() {
            // The merged op stands at the first product, before every reader. `copy` skips the
            // other products, whose results are replaced by then.
            let group = node.inputs.first().and_then(|x| groups.get(x)).filter(|group| group[0] == index);
            let Some(group) = group else {
                rewriter.copy(index);
                continue;
            };
            let products = || group.iter().map(|product| &graph.nodes()[*product]);
            let matrices = products().map(|product| product.inputs[1]);
            let inputs: Vec<_> = node.inputs[..1].iter().copied().chain(matrices).collect();
            let outputs: Vec<_> = products().map(|product| product.outputs[0]).collect();
            let inputs = rewriter.renamed_all(&inputs);
            rewriter.fuse(op, &inputs, &outputs);
        }
        Ok((rewriter.finish()?, groups.len()))
    }
}

/// Returns the positions of the products with a weight by their input, for inputs with two products
/// or more.
fn products_by_input(graph: &Graph) -> HashMap<ValueId, Vec<usize>> {
    let mut groups: HashMap<_, Vec<_>> = HashMap::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        if let (Op::MatMul, [x, w]) = (&node.op, node.inputs.as_slice())
            && matches!(graph.value(*w).source, Source::Weight { .. })
        {
            groups.entry(*x).or_default().push(index);
        }
    }
    groups.retain(|_, group| group.len() > 1);
    groups
}
