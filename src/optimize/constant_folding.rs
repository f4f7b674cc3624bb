use std::{collections::HashMap, f64::consts::PI, sync::Arc};

use super::{Pass, Target};
use crate::{
    DType, Result,
    graph::{Activation, Graph, Node, Op, Rewriter, Rows, Source, ValueId},
};

/// Evaluates ops whose operands are all constants or F32 vectors, such as Llama's rotary
/// frequencies divided by `rope_freqs.weight`.
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

/// Returns the node's result if all its operands are known.
fn fold(graph: &Graph, node: &Node, folded: &Folded, target: &Target<'_>) -> Option<Arc<[f32]>> {
    // A look-up of a weight may copy it: every operand is checked before the first look-up.
    if !node.inputs.iter().all(|id| may_be_known(graph, *id, folded)) {
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
        Source::Weight { slice, .. } => (target.vector)(slice, value.shape.width),
        Source::Node { .. } => folded.get(&id).cloned(),
        Source::Tokens => None,
    }
}

/// Computes an element-wise op or a norm of one row; returns `None` for any other op.
fn evaluate(op: &Op, operands: &[Arc<[f32]>]) -> Option<Arc<[f32]>> {
    let x = operands.first()?;
    Some(match op {
        Op::Add => pairwise(x, operands.get(1)?, |a, b| a + b),
        Op::Mul => pairwise(x, operands.get(1)?, |a, b| a * b),
        Op::Div => pairwise(x, operands.get(1)?, |a, b| a / b),
        Op::Activate(activation) => {
            x.iter().map(|x| activate(*activation, f64::from(*x)).map(|y| y as f32)).collect::<Option<_>>()?
        }
        Op::SoftCap { cap } => x.iter().map(|x| cap * (x / cap).tanh()).collect(),
        Op::Clamp => {
            let limits = pairwise(x, operands.get(1)?, f32::max);
            pairwise(&limits, operands.get(2)?, f32::min)
        }
        Op::Concat { groups } => concat(operands, *groups),
        Op::Slice { first, len, every } => {
            x.chunks(*every).flat_map(|group| &group[*first..first + len]).copied().collect()
        }
        Op::RmsNorm { eps } => {
            let w = operands.get(1)?;
            x.chunks_exact(w.len()).flat_map(|x| rms_norm(x, w, *eps)).collect()
        }
        Op::Embed
        | Op::MatMul
        | Op::MatMulHeads { .. }
        | Op::LayerNorm { .. }
        | Op::Rope(_)
        | Op::Attention(_)
        | Op::ShortConv(_)
        | Op::GatedDelta(_)
        | Op::StateScan(_)
        | Op::SelectOutputs
        | Op::JoinRows { .. }
        | Op::InputRows { .. }
        | Op::PlaceRows { .. }
        | Op::AddRows { .. }
        | Op::Temper { .. }
        | Op::MixStreams { .. }
        | Op::Deviation { .. }
        | Op::Interpolate { .. }
        | Op::Route(_)
        | Op::Experts(_)
        | Op::Fused(_) => return None,
    })
}

fn concat(operands: &[Arc<[f32]>], groups: usize) -> Arc<[f32]> {
    let group = |row: &Arc<[f32]>, group| row[row.len() / groups * group..][..row.len() / groups].to_vec();
    (0..groups).flat_map(|number| operands.iter().flat_map(move |row| group(row, number))).collect()
}

fn pairwise(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> Arc<[f32]> {
    a.iter().zip(b.iter().cycle()).map(|(a, b)| f(*a, *b)).collect()
}

/// Returns the function's value, or `None` for a function that the standard library does not have.
fn activate(activation: Activation, x: f64) -> Option<f64> {
    Some(match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::SquaredRelu => x.max(0.0).powi(2),
        Activation::GeluErf => return None,
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Activation::Gelu => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
    })
}

fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = (mean + f64::from(eps)).sqrt().recip();
    x.iter().zip(w).map(|(x, w)| (f64::from(*x) * scale * f64::from(*w)) as f32).collect()
}
