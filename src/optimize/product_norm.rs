//! In: a product added to a residual, whose sum is normed next. Out: one op with both results.

use super::{Pass, Target, add_rms_norm::norms};
use crate::{
    Result,
    graph::{Graph, Op, Rewriter},
};

/// A product onto a residual and the norm of the sum become one op, so that the norm finds the sum at hand.
#[derive(Debug)]
pub struct ProductNorm;

impl Pass for ProductNorm {
    fn name(&self) -> &'static str {
        "product_norm"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let norms = norms(graph);
        let mut rewriter = Rewriter::new(graph);
        let mut rewrites = 0;
        for (index, node) in graph.nodes().iter().enumerate() {
            let norm = norms.get(&node.outputs[0]).filter(|_| node.op == Op::MatMulAdd);
            let fused = norm.and_then(|norm| match norm.op {
                Op::RmsNorm { eps } => Some((Op::MatMulAddRmsNorm { eps }, norm)),
                _ => None,
            });
            let Some((op, norm)) = fused.filter(|(op, _)| (target.supports)(op)) else {
                rewriter.copy(index);
                continue;
            };
            let inputs = [&node.inputs[..], &norm.inputs[1..]].concat();
            let inputs = rewriter.renamed_all(&inputs);
            rewriter.fuse(op, &inputs, &[node.outputs[0], norm.outputs[0]]);
            rewrites += 1;
        }
        Ok((rewriter.finish()?, rewrites))
    }
}
