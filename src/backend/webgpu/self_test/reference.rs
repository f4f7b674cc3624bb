//! Computes small graphs with plain loops in f64.

use std::{collections::HashMap, f64::consts::PI};

use super::{dense::DenseMatrix, recurrent};
use crate::{
    Error, Result,
    graph::{Activation, AttentionSpec, ExpertsSpec, Glu, Graph, Op, RopeSpec, RopeStyle, Scores, Source, ValueId},
};

/// Returns the logits of all tokens of a sequence.
pub(super) fn logits(graph: &Graph, tensors: &HashMap<String, DenseMatrix>, tokens: &[u32]) -> Result<DenseMatrix> {
    let mut values: HashMap<ValueId, DenseMatrix> = HashMap::new();
    for id in graph.value_ids() {
        let value = match &graph.value(id).source {
            Source::Weight { slice, .. } => tensors.get(&*slice.name).cloned(),
            Source::Constant(row) => {
                Some(DenseMatrix { width: row.len(), data: row.iter().copied().map(f64::from).collect() })
            }
            Source::Tokens => Some(DenseMatrix { width: 1, data: tokens.iter().copied().map(f64::from).collect() }),
            Source::Node { .. } => None,
        };
        values.extend(value.map(|value| (id, value)));
    }
    for node in graph.nodes() {
        let inputs: Option<Vec<_>> = node.inputs.iter().map(|id| values.get(id)).collect();
        let inputs =
            inputs.ok_or_else(|| Error::internal(format!("{} has an operand that no node computes", node.op)))?;
        let result = apply(&node.op, &inputs)?;
        values.insert(node.outputs[0], result);
    }
    values.remove(&graph.logits()).ok_or_else(|| Error::internal("no node computes the logits"))
}

fn apply(op: &Op, inputs: &[&DenseMatrix]) -> Result<DenseMatrix> {
    match op {
        Op::Embed => {
            let [table, tokens] = operands(op, inputs)?;
            let row = |token: &f64| table.data[*token as usize * table.width..][..table.width].to_vec();
            Ok(DenseMatrix::of(table.width, tokens.data.iter().map(row)))
        }
        Op::MatMul => {
            let [x, w] = operands(op, inputs)?;
            let products = x.rows().map(|x| w.rows().map(|w| dot(x, w)).collect());
            Ok(DenseMatrix::of(w.data.len() / w.width, products))
        }
        Op::MatMulHeads { heads } => operands(op, inputs).map(|[x, w]| products_of_heads(*heads, x, w)),
        Op::Add => operands(op, inputs).map(|[a, b]| pairwise(a, b, |a, b| a + b)),
        Op::Mul => operands(op, inputs).map(|[a, b]| pairwise(a, b, |a, b| a * b)),
        Op::Activate(activation) => operands(op, inputs).map(|[x]| x.each(|x| activate(*activation, x))),
        Op::SoftCap { cap } => {
            let cap = f64::from(*cap);
            operands(op, inputs).map(|[x]| x.each(|x| cap * (x / cap).tanh()))
        }
        Op::RmsNorm { eps } => operands(op, inputs).map(|[x, w]| rms_norm(x, w, f64::from(*eps))),
        Op::Rope(spec) => operands(op, inputs).map(|[x, frequencies]| rope(spec, x, frequencies)),
        Op::Attention(spec) if spec.keys_only => operands(op, inputs).map(|[q, k]| attention(spec, q, k, k)),
        Op::Attention(spec) => operands(op, inputs).map(|[q, k, v]| attention(spec, q, k, v)),
        Op::Route(spec) => {
            let [logits] = operands(op, inputs)?;
            Ok(DenseMatrix::of(logits.width, logits.rows().map(|row| route(row, spec.top_k))))
        }
        Op::Experts(spec) => match inputs {
            [x, weights, matrices @ ..] => Ok(experts(spec, x, weights, matrices)),
            _ => Err(wrong_operands(op)),
        },
        Op::ShortConv(spec) => match inputs {
            [x, w] => Ok(recurrent::short_conv(spec, x, w, None)),
            [x, w, bias] => Ok(recurrent::short_conv(spec, x, w, Some(bias))),
            _ => Err(wrong_operands(op)),
        },
        Op::GatedDelta(spec) => operands(op, inputs)
            .map(|[qkv, alpha, beta, a, dt]| recurrent::gated_delta(spec, qkv, [alpha, beta, a, dt])),
        Op::StateScan(spec) => {
            operands(op, inputs).map(|[x, dt, a, bias, d]| recurrent::state_scan(spec, x, [dt, a, bias, d]))
        }
        Op::SelectOutputs => operands(op, inputs).map(|[x]| x.clone()),
        Op::Div
        | Op::Slice { .. }
        | Op::Clamp
        | Op::Concat { .. }
        | Op::LayerNorm { .. }
        | Op::JoinRows { .. }
        | Op::InputRows { .. }
        | Op::PlaceRows { .. }
        | Op::AddRows { .. }
        | Op::Temper { .. }
        | Op::MixStreams { .. }
        | Op::Deviation { .. }
        | Op::Interpolate { .. }
        | Op::Fused(_) => Err(Error::internal(format!("the self-test does not compute {op}"))),
    }
}

fn operands<'m, const N: usize>(op: &Op, inputs: &[&'m DenseMatrix]) -> Result<[&'m DenseMatrix; N]> {
    inputs.try_into().map_err(|_| wrong_operands(op))
}

fn wrong_operands(op: &Op) -> Error {
    Error::internal(format!("the self-test got the wrong number of operands for {op}"))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn products_of_heads(heads: usize, x: &DenseMatrix, w: &DenseMatrix) -> DenseMatrix {
    let rows = w.data.len() / w.width / heads;
    let product =
        |x: &[f64], row: usize| dot(&x[row / rows * w.width..][..w.width], &w.data[row * w.width..][..w.width]);
    DenseMatrix::of(heads * rows, x.rows().map(|x| (0..heads * rows).map(|row| product(x, row)).collect()))
}

fn glu(glu: Glu, gate: f64, up: f64) -> f64 {
    match glu {
        Glu::Plain(activation) => activate(activation, gate) * up,
        Glu::Clamped => {
            let gate = gate.min(7.0);
            gate / (1.0 + (-1.702 * gate).exp()) * (up.clamp(-7.0, 7.0) + 1.0)
        }
    }
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::SquaredRelu => x.max(0.0).powi(2),
        Activation::GeluErf => 0.5 * x * (1.0 + erf(x / 2.0_f64.sqrt())),
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Activation::Gelu => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
    }
}

/// Returns the error function, by its series for small arguments.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let terms = (1..80).scan(x, |term, n| {
        *term *= -x * x / f64::from(n);
        Some(*term / f64::from(2 * n + 1))
    });
    2.0 / PI.sqrt() * (x + terms.sum::<f64>())
}

fn route(logits: &[f64], top_k: usize) -> Vec<f64> {
    let mut order: Vec<_> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let powers = order[..top_k].iter().map(|index| (logits[*index] - logits[order[0]]).exp());
    let sum: f64 = powers.clone().sum();
    let mut weights = vec![0.0; logits.len()];
    order.iter().zip(powers).for_each(|(index, power)| weights[*index] = power / sum);
    weights
}

fn experts(spec: &ExpertsSpec, x: &DenseMatrix, weights: &DenseMatrix, matrices: &[&DenseMatrix]) -> DenseMatrix {
    let down = matrices[matrices.len() - 1];
    let ffn = down.width;
    let row = |w: &'_ DenseMatrix, index: usize, x: &[f64]| dot(&w.data[index * w.width..][..w.width], x);
    let of_row = |(x, weights): (&[f64], &[f64])| {
        let mut sum = vec![0.0; x.len()];
        for (expert, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            let gated: Vec<f64> = (0..ffn)
                .map(|i| match matrices {
                    [both, _] => [2 * expert, 2 * expert + 1].map(|part| row(both, part * ffn + i, x)),
                    _ => [0, 1].map(|part| row(matrices[part], expert * ffn + i, x)),
                })
                .map(|[gate, up]| glu(spec.glu, gate, up))
                .collect();
            sum.iter_mut().enumerate().for_each(|(i, sum)| *sum += weight * row(down, expert * x.len() + i, &gated));
        }
        sum
    };
    DenseMatrix::of(x.width, x.rows().zip(weights.rows()).map(of_row))
}

fn pairwise(a: &DenseMatrix, b: &DenseMatrix, f: fn(f64, f64) -> f64) -> DenseMatrix {
    DenseMatrix { width: a.width, data: a.data.iter().zip(b.data.iter().cycle()).map(|(a, b)| f(*a, *b)).collect() }
}

fn rms_norm(x: &DenseMatrix, w: &DenseMatrix, eps: f64) -> DenseMatrix {
    let norm = |group: &[f64]| {
        let square = group.iter().map(|x| x * x).sum::<f64>() / group.len() as f64;
        let root = (square + eps).sqrt();
        group.iter().zip(&w.data).map(|(x, w)| x / root * w).collect::<Vec<_>>()
    };
    DenseMatrix { width: x.width, data: x.data.chunks_exact(w.width).flat_map(norm).collect() }
}

fn rope(spec: &RopeSpec, x: &DenseMatrix, frequencies: &DenseMatrix) -> DenseMatrix {
    let pairs = frequencies.width;
    let mut rotated = x.clone();
    for (position, row) in rotated.data.chunks_exact_mut(x.width).enumerate() {
        for head in row.chunks_exact_mut(spec.head_dim) {
            for (i, frequency) in frequencies.data.iter().enumerate() {
                let (a, b) = match spec.style {
                    RopeStyle::Adjacent => (2 * i, 2 * i + 1),
                    RopeStyle::Halves => (i, i + pairs),
                    RopeStyle::Quarters => {
                        let half = pairs / 2;
                        let first = i / half * pairs + i % half;
                        (first, first + half)
                    }
                };
                let (sine, cosine) = (position as f64 * frequency).sin_cos();
                (head[a], head[b]) = (head[a] * cosine - head[b] * sine, head[a] * sine + head[b] * cosine);
            }
        }
    }
    rotated
}

fn attention(spec: &AttentionSpec, q: &DenseMatrix, k: &DenseMatrix, v: &DenseMatrix) -> DenseMatrix {
    let dim = spec.head_dim;
    let group = spec.heads / spec.kv_heads;
    let Scores { scale, softcap, window, .. } = spec.scores;
    let head_of = |row: &[f64], head: usize| row[head * dim..(head + 1) * dim].to_vec();
    let attend = |(position, row): (usize, &[f64])| {
        let attend_head = |head: usize| {
            let query = head_of(row, head);
            let score = |key: &[f64]| {
                let key = head_of(key, head / group);
                let score = query.iter().zip(&key).map(|(q, k)| q * k).sum::<f64>() * f64::from(scale);
                softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
            };
            let hidden = window.map_or(0, |window| window.first_seen(position));
            let scores: Vec<_> = k.rows().take(position + 1).skip(hidden).map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let shares: Vec<_> = scores.iter().map(|score| (score - most).exp()).collect();
            let total: f64 = shares.iter().sum();
            let mut sum = vec![0.0; dim];
            for (share, value) in shares.iter().zip(v.rows().skip(hidden)) {
                let value = head_of(value, head / group);
                sum.iter_mut().zip(&value).for_each(|(sum, value)| *sum += share / total * value);
            }
            sum
        };
        (0..spec.heads).flat_map(attend_head).collect()
    };
    DenseMatrix::of(q.width, q.rows().enumerate().map(attend))
}
