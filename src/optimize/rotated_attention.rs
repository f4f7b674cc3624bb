//! In: attention whose queries and keys are rotated, after norms of their heads or without. Out: one op.

use super::{Pass, Target, sole_use};
use crate::{
    Result,
    graph::{AttentionSpec, Graph, Node, Op, Rewriter, RopeSpec, Rows, Shape, ValueId},
};

/// What leads up to attention becomes a part of it: a step of few tokens spends longer on starting small ops than on
/// computing them.
#[derive(Debug)]
pub struct RotatedAttention;

impl Pass for RotatedAttention {
    fn name(&self) -> &'static str {
        "rotated_attention"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let uses = graph.uses();
        let mut rewriter = Rewriter::new(graph);
        let mut rewrites = 0;
        for (index, node) in graph.nodes().iter().enumerate() {
            let Some((op, inputs)) = rotated(graph, &uses, node).filter(|(op, _)| (target.supports)(op)) else {
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
fn rotated(graph: &Graph, uses: &[usize], node: &Node) -> Option<(Op, Vec<ValueId>)> {
    let Op::Attention(attention) = node.op else { return None };
    let [q, k, v] = node.inputs[..] else { return None };
    let (q, frequencies, rope) = rotation(graph, uses, q)?;
    let same = |(_, f, spec): &(ValueId, ValueId, RopeSpec)| *f == frequencies && *spec == rope;
    let (k, ..) = rotation(graph, uses, k).filter(same)?;
    if rope.head_dim != attention.head_dim {
        return None;
    }
    let norms = head_norm(graph, uses, q, &attention).zip(head_norm(graph, uses, k, &attention));
    match norms.filter(|((.., q), (.., k))| q == k) {
        Some(((q, q_norm, eps), (k, k_norm, _))) => {
            let op = Op::RotatedAttention { attention, rope, norm: Some(eps) };
            Some((op, vec![q, k, v, frequencies, q_norm, k_norm]))
        }
        None => Some((Op::RotatedAttention { attention, rope, norm: None }, vec![q, k, v, frequencies])),
    }
}

/// What is rotated, by which frequencies and how.
fn rotation(graph: &Graph, uses: &[usize], id: ValueId) -> Option<(ValueId, ValueId, RopeSpec)> {
    match sole_use(graph, uses, id)? {
        Node { op: Op::Rope(spec), inputs, .. } => Some((inputs[0], inputs[1], *spec)),
        _ => None,
    }
}

/// What is normed head by head, the weight, and what is added to the mean square.
fn head_norm(graph: &Graph, uses: &[usize], id: ValueId, spec: &AttentionSpec) -> Option<(ValueId, ValueId, f32)> {
    match sole_use(graph, uses, id)? {
        Node { op: Op::RmsNorm { eps }, inputs, .. }
            if graph.shape(inputs[1]) == Shape::new(Rows::Fixed(1), spec.head_dim) =>
        {
            Some((inputs[0], inputs[1], *eps))
        }
        _ => None,
    }
}
