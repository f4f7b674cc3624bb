//! In: ops over numbers that are known before any step. Out: their results as constants, so that no step computes them.

use std::{collections::HashMap, f64::consts::PI, sync::Arc};

use super::{Pass, Target};
use crate::{
    DType, Result,
    graph::{Activation, Graph, Node, Op, Rewriter, Rows, Source, ValueId},
};

/// Computes what depends on constants and F32 vectors alone: Llama's rotary frequencies over `rope_freqs.weight`.
#[derive(Debug)]
pub struct ConstantFolding;

impl Pass for ConstantFolding {
    fn name(&self) -> &'static str {
        "constant_folding"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let mut folded = HashMap::new();
        let mut rewriter = Rewriter::new(graph);
        for (index, node) in graph.nodes().iter().enumerate() {
            let Some(row) = fold(graph, node, &folded, target) else {
                rewriter.copy(index);
                continue;
            };
            let constant = rewriter.builder().constant(row.clone());
            rewriter.replace(node.outputs[0], constant);
            folded.insert(node.outputs[0], row);
        }
        Ok((rewriter.finish()?, folded.len()))
    }
}

type Folded = HashMap<ValueId, Arc<[f32]>>;

/// The node's result, where all its operands are known.
fn fold(graph: &Graph, node: &Node, folded: &Folded, target: &Target<'_>) -> Option<Arc<[f32]>> {
    let folds = match node.op {
        Op::Add | Op::Mul | Op::Div | Op::Activate(_) | Op::SoftCap { .. } | Op::Slice { .. } | Op::RmsNorm { .. } => {
            true
        }
        Op::Embed
        | Op::MatMul
        | Op::Rope(_)
        | Op::Attention(_)
        | Op::ShortConv(_)
        | Op::GatedDelta(_)
        | Op::SelectOutputs
        | Op::Route { .. }
        | Op::Experts(_)
        | Op::MatMulJoined
        | Op::MatMulGlu(_)
        | Op::MatMulAdd
        | Op::AddRmsNorm { .. }
        | Op::MatMulAddRmsNorm { .. }
        | Op::RotatedAttention { .. } => false,
    };
    // Asked first, since to look a weight up may cost a copy.
    if !folds || !node.inputs.iter().all(|id| may_be_known(graph, *id, folded)) {
        return None;
    }
    let operands: Option<Vec<_>> = node.inputs.iter().map(|id| known(graph, *id, folded, target)).collect();
    evaluate(&node.op, &operands?)
}

fn may_be_known(graph: &Graph, id: ValueId, folded: &Folded) -> bool {
    let value = graph.value(id);
    match value.source {
        Source::Constant(_) => true,
        Source::Weight { dtype, .. } => dtype == DType::F32 && value.shape.rows == Rows::Fixed(1),
        Source::Node { .. } => folded.contains_key(&id),
        Source::Tokens => false,
    }
}

fn known(graph: &Graph, id: ValueId, folded: &Folded, target: &Target<'_>) -> Option<Arc<[f32]>> {
    let value = graph.value(id);
    match &value.source {
        Source::Constant(row) => Some(row.clone()),
        Source::Weight { name, .. } => (target.vector)(name).filter(|row| row.len() == value.shape.width),
        Source::Node { .. } => folded.get(&id).cloned(),
        Source::Tokens => None,
    }
}

/// The op on single rows; `None` for ops that are not folded.
fn evaluate(op: &Op, operands: &[Arc<[f32]>]) -> Option<Arc<[f32]>> {
    let row = match (op, operands) {
        (Op::Add, [a, b]) => pairwise(a, b, |a, b| a + b),
        (Op::Mul, [a, b]) => pairwise(a, b, |a, b| a * b),
        (Op::Div, [a, b]) => pairwise(a, b, |a, b| a / b),
        (Op::SoftCap { cap }, [x]) => x.iter().map(|x| cap * (x / cap).tanh()).collect(),
        (Op::Slice { first, len, every }, [x]) => {
            x.chunks(*every).flat_map(|group| &group[*first..first + len]).copied().collect()
        }
        (Op::Activate(activation), [x]) => x.iter().map(|x| activate(*activation, f64::from(*x)) as f32).collect(),
        (Op::RmsNorm { eps }, [x, w]) => x.chunks_exact(w.len()).flat_map(|x| rms_norm(x, w, *eps)).collect(),
        _ => return None,
    };
    Some(row)
}

fn pairwise(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> Arc<[f32]> {
    a.iter().zip(b.iter().cycle()).map(|(a, b)| f(*a, *b)).collect()
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Gelu => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
    }
}

fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = (mean + f64::from(eps)).sqrt().recip();
    x.iter().zip(w).map(|(x, w)| (f64::from(*x) * scale * f64::from(*w)) as f32).collect()
}
