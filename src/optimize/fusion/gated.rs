use super::{Fusion, fuse, sole_use};
use crate::{
    Result,
    graph::{FusedOp, Graph, Node, Op, ValueId},
    optimize::{Pass, Target},
};

/// Fuses `x * f(gate)`, in either order, into one op, and the norm of the heads of `x` with it,
/// which saves up to two writes and reads of the rows.
#[derive(Debug)]
pub struct GatedFusion;

impl Pass for GatedFusion {
    fn name(&self) -> &'static str {
        "gated_fusion"
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
    let (activation, gate, x) = [(a, b), (b, a)].into_iter().find_map(|(gated, x)| {
        let Node { op: Op::Activate(activation), inputs, .. } = sole_use(graph, uses, gated)? else { return None };
        (graph.shape(gated) == graph.shape(x)).then_some((*activation, inputs[0], x))
    })?;
    let (norm, inputs) = match head_norm(graph, uses, x) {
        Some((eps, [x, w])) => (Some(eps), vec![x, gate, w]),
        None => (None, vec![x, gate]),
    };
    Some(Fusion { op: FusedOp::Gated { activation, norm }, inputs, replaced: node.outputs.clone() })
}

/// Returns the norm of heads that makes `x`, and its operands. The norm of a whole row is left to
/// the fusion with the sum before it.
fn head_norm(graph: &Graph, uses: &[usize], x: ValueId) -> Option<(f32, [ValueId; 2])> {
    let Node { op: Op::RmsNorm { eps }, inputs, .. } = sole_use(graph, uses, x)? else { return None };
    (graph.shape(inputs[1]).width < graph.shape(x).width).then_some((*eps, [inputs[0], inputs[1]]))
}
