use super::{Fusion, fuse, row_norms};
use crate::{
    Result,
    graph::{FusedOp, Graph, Op},
    optimize::{Pass, Target},
};

/// Fuses a product added to a residual with the norm of the sum into one op with both results, so
/// that the norm reads the sum from registers or cache.
#[derive(Debug)]
pub struct MatMulAddNormFusion;

impl Pass for MatMulAddNormFusion {
    fn name(&self) -> &'static str {
        "matmul_add_norm_fusion"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let norms = row_norms(graph);
        fuse(graph, target, |node| {
            let norm = norms.get(&node.outputs[0]).filter(|_| node.op == Op::Fused(FusedOp::MatMulAdd))?;
            Some(Fusion {
                op: FusedOp::MatMulAddRmsNorm { eps: norm.eps },
                inputs: [&node.inputs[..], &[norm.weight]].concat(),
                replaced: vec![node.outputs[0], norm.output],
            })
        })
    }
}
