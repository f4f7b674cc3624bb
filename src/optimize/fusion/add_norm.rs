use super::{Fusion, fuse, row_norms};
use crate::{
    Result,
    graph::{FusedOp, Graph, Op},
    optimize::{Pass, Target},
};

/// Fuses a sum and its norm into one op with both results, which saves one read of the sum.
#[derive(Debug)]
pub struct AddNormFusion;

impl Pass for AddNormFusion {
    fn name(&self) -> &'static str {
        "add_norm_fusion"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let norms = row_norms(graph);
        fuse(graph, target, |node| {
            let &[a, b] = &node.inputs[..] else { return None };
            if node.op != Op::Add || graph.shape(a) != graph.shape(b) {
                return None;
            }
            let norm = norms.get(&node.outputs[0])?;
            Some(Fusion {
                op: FusedOp::AddRmsNorm { eps: norm.eps },
                inputs: vec![a, b, norm.weight],
                replaced: vec![node.outputs[0], norm.output],
            })
        })
    }
}
