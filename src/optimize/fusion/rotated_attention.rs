use super::{Fusion, fuse, sole_use};
use crate::{
    Result,
    graph::{AttentionSpec, FusedOp, Graph, Node, Op, RopeSpec, Rows, Shape, ValueId},
    optimize::{Pass, Target},
};

/// Fuses attention with the rotation of its queries and keys, and with the norms of their heads if
/// there are any: a step of few tokens spends longer on starting small ops than on computing them.
#[derive(Debug)]
pub struct RotatedAttentionFusion;

impl Pass for RotatedAttentionFusion {
    fn name(&self) -> &'static str {
        "rotated_attention_fusion"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let uses = graph.uses();
        fuse(graph, target, |node| rotated_attention(graph, &uses, node))
    }
}

fn rotated_attention(graph: &Graph, uses: &[usize], node: &Node) -> Option<Fusion> {
    let Op::Attention(attention) = node.op else { return None };
    let &[q, k, v] = &node.inputs[..] else { return None };
    let (q, k) = (rotation(graph, uses, q)?, rotation(graph, uses, k)?);
    if (q.frequencies, q.spec) != (k.frequencies, k.spec) || q.spec.head_dim != attention.head_dim {
        return None;
    }
    let (rope, frequencies, replaced) = (q.spec, q.frequencies, node.outputs.clone());
    let norms = head_norm(graph, uses, q.x, &attention).zip(head_norm(graph, uses, k.x, &attention));
    Some(match norms.filter(|(q, k)| q.eps == k.eps) {
        Some((q, k)) => Fusion {
            op: FusedOp::RotatedAttention { attention, rope, norm: Some(q.eps) },
            inputs: vec![q.x, k.x, v, frequencies, q.weight, k.weight],
            replaced,
        },
        None => Fusion {
            op: FusedOp::RotatedAttention { attention, rope, norm: None },
            inputs: vec![q.x, k.x, v, frequencies],
            replaced,
        },
    })
}

struct RotatedInputs {
    x: ValueId,
    frequencies: ValueId,
    spec: RopeSpec,
}

/// Returns the rotation that makes a value with exactly one reader.
fn rotation(graph: &Graph, uses: &[usize], id: ValueId) -> Option<RotatedInputs> {
    let Node { op: Op::Rope(spec), inputs, .. } = sole_use(graph, uses, id)? else { return None };
    Some(RotatedInputs { x: inputs[0], frequencies: inputs[1], spec: *spec })
}

struct HeadNorm {
    x: ValueId,
    weight: ValueId,
    eps: f32,
}

/// Returns the norm of each head that makes a value with exactly one reader.
fn head_norm(graph: &Graph, uses: &[usize], id: ValueId, spec: &AttentionSpec) -> Option<HeadNorm> {
    let Node { op: Op::RmsNorm { eps }, inputs, .. } = sole_use(graph, uses, id)? else { return None };
    let per_head = graph.shape(inputs[1]) == Shape::new(Rows::Fixed(1), spec.head_dim);
    per_head.then(|| HeadNorm { x: inputs[0], weight: inputs[1], eps: *eps })
}
