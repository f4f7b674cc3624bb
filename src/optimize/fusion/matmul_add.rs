use super::{Fusion, fuse, sole_product};
use crate::{
    Result,
    graph::{FusedOp, Graph, Node, Op},
    optimize::{Pass, Target},
};

/// Fuses `residual + x w^T`, in either order, into one op: the product is added to the residual as
/// it is written.
#[derive(Debug)]
pub struct MatMulAddFusion;

impl Pass for MatMulAddFusion {
    fn name(&self) -> &'static str {
        "matmul_add_fusion"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let uses = graph.uses();
        fuse(graph, target, |node| sum_with_product(graph, &uses, node))
    }
}

fn sum_with_product(graph: &Graph, uses: &[usize], node: &Node) -> Option<Fusion> {
    // A bias is one row for all rows, and not a residual.
    if node.op != Op::Add || graph.shape(node.inputs[0]) != graph.shape(node.inputs[1]) {
        return None;
    }
    let (a, b) = (node.inputs[0], node.inputs[1]);
    // A residual is written `x + f(x)`: of two products the second operand is the later one.
    [(a, b), (b, a)].into_iter().find_map(|(residual, product)| {
        let (x, w) = sole_product(graph, uses, product)?;
        Some(Fusion { op: FusedOp::MatMulAdd, inputs: vec![x, w, residual], replaced: node.outputs.clone() })
    })
}
