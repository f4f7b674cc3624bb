use super::{Fusion, fuse, sole_product, sole_use};
use crate::{
    Result,
    graph::{FusedOp, Graph, Node, Op},
    optimize::{Pass, Target},
};

/// Fuses `f(x gate^T) * (x up^T)`, in either order, into one op that writes neither product to
/// memory ([Shazeer 2020](https://arxiv.org/abs/2002.05202)).
#[derive(Debug)]
pub struct GluFusion;

impl Pass for GluFusion {
    fn name(&self) -> &'static str {
        "glu_fusion"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let uses = graph.uses();
        fuse(graph, target, |node| gated(graph, &uses, node))
    }
}

fn gated(graph: &Graph, uses: &[usize], node: &Node) -> Option<Fusion> {
    if node.op != Op::Mul {
        return None;
    }
    let (a, b) = (node.inputs[0], node.inputs[1]);
    [(a, b), (b, a)].into_iter().find_map(|(gated, up)| {
        let Node { op: Op::Activate(activation), inputs, .. } = sole_use(graph, uses, gated)? else { return None };
        let (x, gate) = sole_product(graph, uses, inputs[0])?;
        let (also_x, up) = sole_product(graph, uses, up)?;
        (x == also_x && graph.shape(gate) == graph.shape(up)).then(|| Fusion {
            op: FusedOp::MatMulGlu(*activation),
            inputs: vec![x, gate, up],
            replaced: node.outputs.clone(),
        })
    })
}
