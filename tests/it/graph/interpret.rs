//! Tests the reference interpreter against results computed by hand.

use std::{collections::HashMap, f32::consts::FRAC_PI_2};

use inkstone::internals::graph::{Activation, AttentionSpec, ExpertsSpec, FusedOp, Op, RopeAxes, RopeSpec, RopeStyle};

use crate::support::interpret::{Interpreter, Matrix, Run, Step};

/// Applies an op to a step of one sequence from position `start` on, and compares the result.
fn check(op: &Op, inputs: &[&[&[f64]]], start: usize, expected: &[&[f64]]) {
    let weights = HashMap::new();
    apply_and_compare(&mut Interpreter::new(&weights), op, inputs, &[(0, start, inputs[0].len())], expected);
}

fn apply_and_compare(
    interpreter: &mut Interpreter<'_>,
    op: &Op,
    inputs: &[&[&[f64]]],
    runs: &[(usize, usize, usize)],
    expected: &[&[f64]],
) {
    let matrix = |rows: &&[&[f64]]| Matrix::new(rows.len(), rows[0].len(), rows.concat());
    let inputs: Vec<_> = inputs.iter().map(matrix).collect();
    let runs: Vec<_> = runs.iter().map(|&(sequence, start, len)| Run::new(sequence, start, len)).collect();
    let step = Step { tokens: vec![0; inputs[0].rows], runs, outputs: vec![], ..Step::default() };
    let found = interpreter.apply(op, &inputs, &step).concat_data();
    let expected = expected.concat();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-6, "{op}: {found} is not {expected}");
    }
}

trait ConcatData {
    fn concat_data(&self) -> Vec<f64>;
}

impl ConcatData for Vec<Matrix> {
    fn concat_data(&self) -> Vec<f64> {
        self.iter().flat_map(|matrix| matrix.data.iter().copied()).collect()
    }
}

#[test]
fn rope_turns_pairs_by_position_times_frequency() {
    // Position 1: the first pair by a quarter turn, the second by half of one.
    let frequencies: &[&[f64]] = &[&[f64::from(FRAC_PI_2), 2.0 * f64::from(FRAC_PI_2)]];
    let x: &[&[f64]] = &[&[1.0, 2.0, 3.0, 4.0, 5.0]];
    let op = |style| Op::Rope(RopeSpec { style, head_dim: 5, axes: RopeAxes::First });
    check(&op(RopeStyle::Adjacent), &[x, frequencies], 1, &[&[-2.0, 1.0, -3.0, -4.0, 5.0]]);
    check(&op(RopeStyle::Halves), &[x, frequencies], 1, &[&[-3.0, -2.0, 1.0, -4.0, 5.0]]);
    check(&op(RopeStyle::Halves), &[x, frequencies], 0, x);
}

#[test]
fn attention_reads_its_sequence_up_to_the_tokens_position() {
    let spec = AttentionSpec { layer: 0, heads: 2, kv_heads: 1, head_dim: 1, keys_only: false, scores: 2.0.into() };
    let op = &Op::Attention(spec);
    let weights = HashMap::new();
    let interpreter = &mut Interpreter::new(&weights);
    // The second token's scores are 0 and ln 3 in the first head, so its weights 1/4 and 3/4; equal
    // in the second.
    let half_ln_3 = 3f64.ln() / 2.0;
    let q: &[&[f64]] = &[&[9.0, 9.0], &[half_ln_3, 0.0], &[5.0, 5.0]];
    let k: &[&[f64]] = &[&[0.0], &[1.0], &[7.0]];
    let v: &[&[f64]] = &[&[4.0], &[8.0], &[-1.0]];
    let expected: &[&[f64]] = &[&[4.0, 4.0], &[7.0, 6.0], &[-1.0, -1.0]];
    apply_and_compare(interpreter, op, &[q, k, v], &[(0, 0, 2), (1, 0, 1)], expected);
    // The second token again, over the first token's keys and values in the cache.
    apply_and_compare(interpreter, op, &[&[q[1]], &[k[1]], &[v[1]]], &[(0, 1, 1)], &[expected[1]]);
}

#[test]
fn experts_are_selected_and_summed_by_weight() {
    let ln_3 = 3f64.ln();
    check(&Op::Route(2.into()), &[&[&[0.0, ln_3, -9.0, 0.0]]], 0, &[&[0.25, 0.75, 0.0, 0.0]]);
    // Two experts of one element on rows of two. silu(ln 3) is 3/4 ln 3.
    let op = Op::Experts(ExpertsSpec { experts: 2, top_k: 2, glu: Activation::Silu.into(), biased: false });
    let x: &[&[f64]] = &[&[ln_3, 1.0]];
    let weights: &[&[f64]] = &[&[0.5, 2.0]];
    let (gate, up): (&[&[f64]], &[&[f64]]) = (&[&[1.0, 0.0], &[0.0, 0.0]], &[&[0.0, 4.0], &[5.0, 5.0]]);
    let down: &[&[f64]] = &[&[1.0], &[2.0], &[3.0], &[4.0]];
    check(&op, &[x, weights, gate, up, down], 0, &[&[1.5 * ln_3, 3.0 * ln_3]]);
    // The same matrices with gate and up joined for each expert.
    let gate_up: &[&[f64]] = &[gate[0], up[0], gate[1], up[1]];
    check(&op, &[x, weights, gate_up, down], 0, &[&[1.5 * ln_3, 3.0 * ln_3]]);
    // With a top_k of 1, only the first expert counts.
    let op = Op::Experts(ExpertsSpec { experts: 2, top_k: 1, glu: Activation::Silu.into(), biased: false });
    check(
        &op,
        &[x, weights, up, gate, down],
        0,
        &[&[0.5 * ln_3 * 4.0 / (1.0 + (-4f64).exp()), ln_3 * 4.0 / (1.0 + (-4f64).exp())]],
    );
}

#[test]
fn norms_products_and_activations_match_hand_computed_results() {
    let x: &[&[f64]] = &[&[3.0, 4.0, 0.0, 2.0]];
    // Mean squares 12.5 and 2 over pairs; with eps 0.
    let root = |square: f64| square.sqrt();
    let normed = [3.0 / root(12.5), 8.0 / root(12.5), 0.0, 4.0 / root(2.0)];
    check(&Op::RmsNorm { eps: 0.0 }, &[x, &[&[1.0, 2.0]]], 0, &[&normed]);
    check(&Op::RmsNorm { eps: 1.75 }, &[x, &[&[1.0; 4]]], 0, &[&[1.0, 4.0 / 3.0, 0.0, 2.0 / 3.0]]);
    check(
        &Op::Fused(FusedOp::AddRmsNorm { eps: 1.75 }),
        &[&[&[1.0, 2.0]], &[&[1.0, 1.0]], &[&[1.0, 2.0]]],
        0,
        &[&[2.0, 3.0], &[2.0 / root(8.25), 6.0 / root(8.25)]],
    );
    check(&Op::MatMul, &[&[&[1.0, 2.0]], &[&[3.0, 4.0], &[5.0, 6.0], &[0.0, 1.0]]], 0, &[&[11.0, 17.0, 2.0]]);
    let ln_3 = 3f64.ln();
    check(&Op::Activate(Activation::Silu), &[&[&[ln_3, 0.0, -ln_3]]], 0, &[&[0.75 * ln_3, 0.0, -0.25 * ln_3]]);
    check(
        &Op::Fused(FusedOp::MatMulGlu(Activation::Silu)),
        &[&[&[ln_3]], &[&[1.0]], &[&[2.0]]],
        0,
        &[&[1.5 * ln_3 * ln_3]],
    );
    let gated = FusedOp::Gated { activation: Activation::Silu, norm: Some(0.0) };
    check(
        &Op::Fused(gated),
        &[&[&[3.0, 4.0]], &[&[ln_3, -ln_3]], &[&[1.0, 2.0]]],
        0,
        &[&[0.75 * ln_3 * 3.0 / root(12.5), -0.25 * ln_3 * 8.0 / root(12.5)]],
    );
    // The expected results are from Python's `math`.
    check(
        &Op::Activate(Activation::Gelu),
        &[&[&[1.0, 0.0, -2.0]]],
        0,
        &[&[0.8411919906082768, 0.0, -0.04540230591222494]],
    );
    check(&Op::Div, &[&[&[1.0, 2.0], &[3.0, 4.0]], &[&[2.0, 4.0]]], 0, &[&[0.5, 0.5], &[1.5, 1.0]]);
}
