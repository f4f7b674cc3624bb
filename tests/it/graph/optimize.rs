//! Tests passes: each rewrites its pattern and no other, and the rewritten graph has the same
//! result.

use std::{collections::HashMap, sync::Arc};

use inkstone::{
    DType, Error,
    internals::{
        graph::{
            Activation, Builder, FusedOp, Graph, LayerCache, Op, RopeAxes, RopeSpec, RopeStyle, Rows, Source, ValueId,
        },
        optimize::{
            AddNormFusion, CommonSubexpressions, ConstantFolding, DeadCode, GatedFusion, GluFusion, MatMulAddFusion,
            MatMulAddNormFusion, MergeMatMuls, Optimized, PASSES, Pass, PruneRows, RotatedAttentionFusion, Target,
            optimize, optimize_with,
        },
        weights::TensorSlice,
    },
};
use proptest::prelude::*;

use crate::support::{
    graphs::{self, SMALL, VOCABULARY, llama_like, qwen3_like, random_graph, steps, weights_for},
    interpret::{Interpreter, Matrix, Weights},
};

const GLU: Op = Op::Fused(FusedOp::MatMulGlu(Activation::Silu));

/// Runs passes for a backend that has all fused ops, over these weights.
fn run(passes: &[&dyn Pass], graph: &Graph, weights: &Weights) -> Optimized {
    let vector = |slice: &TensorSlice, _| weights.get(&*slice.name).map(|row| Arc::from(row.as_slice()));
    optimize_with(passes, graph, &Target { supports: &|_| true, vector: &vector }).unwrap()
}

/// Runs one pass and compares the results of both graphs. Returns the rewritten graph and the
/// number of rewrites.
fn run_one(pass: &dyn Pass, graph: &Graph) -> (Graph, usize) {
    let weights = weights_for(graph, 1);
    let Optimized { graph: rewritten, report } = run(&[pass], graph, &weights);
    assert_same_logits(graph, &rewritten, &weights, VOCABULARY);
    assert_eq!(report[0].0, pass.name());
    let again = run(&[pass], &rewritten, &weights);
    assert_eq!(again.report[0].1, 0, "{} rewrites its own result\n{rewritten}", pass.name());
    assert_eq!(again.graph.to_string(), rewritten.to_string());
    (rewritten, report[0].1)
}

/// Checks that the logits of both graphs agree to a few roundings of f64, in steps of several
/// sequences.
fn assert_same_logits(original: &Graph, rewritten: &Graph, weights: &Weights, vocabulary: usize) {
    let (mut a, mut b) = (Interpreter::new(weights), Interpreter::new(weights));
    for step in steps(vocabulary) {
        assert_close(&a.run(original, &step), &b.run(rewritten, &step), rewritten);
    }
}

fn assert_close(expected: &Matrix, found: &Matrix, graph: &Graph) {
    assert_eq!((expected.rows, expected.width), (found.rows, found.width));
    let scale = expected.data.iter().fold(1.0, |scale: f64, x| scale.max(x.abs()));
    for (expected, found) in expected.data.iter().zip(&found.data) {
        assert!((expected - found).abs() <= 1e-10 * scale, "{found} is not {expected} in\n{graph}");
    }
}

/// Returns the number of nodes of each op, by name.
fn ops(graph: &Graph) -> HashMap<&'static str, usize> {
    let mut ops = HashMap::new();
    graph.nodes().iter().for_each(|node| *ops.entry(node.op.name()).or_default() += 1);
    ops
}

fn count(graph: &Graph, op: &Op) -> usize {
    graph.nodes().iter().filter(|node| node.op == *op).count()
}

/// Returns a graph under construction, and the embeddings of its tokens, `[Tokens, 8]`.
fn start() -> (Builder, ValueId) {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let table = b.weight("table", DType::F32, VOCABULARY, 8);
    let x = b.embed(table, tokens);
    (b, x)
}

fn square(b: &mut Builder, name: &str) -> ValueId {
    b.weight(name, DType::F32, 8, 8)
}

fn matmul(b: &mut Builder, x: ValueId, name: &str) -> ValueId {
    let w = square(b, name);
    b.matmul(x, w)
}

fn norm(b: &mut Builder, x: ValueId) -> ValueId {
    let w = b.weight("norm", DType::F32, 1, 8);
    b.rms_norm(x, w, 1e-6)
}

#[test]
fn dead_nodes_weights_and_constants_are_removed() {
    let (mut b, x) = start();
    let unread = matmul(&mut b, x, "unread");
    b.silu(unread);
    b.constant([1.0, 2.0]);
    b.weight("never.named", DType::F32, 3, 3);
    let read = matmul(&mut b, x, "read");
    let graph = b.finish(read).unwrap();

    let (rewritten, removed) = run_one(&DeadCode, &graph);
    // Two results, their weight, the constant and the weight that no node reads.
    assert_eq!(removed, 5);
    assert_eq!(ops(&rewritten), HashMap::from([("embed", 1), ("matmul", 1), ("select_outputs", 1)]));
    assert_eq!(rewritten.values().len(), 6);
}

#[test]
fn constants_and_f32_vectors_fold() {
    let (mut b, x) = start();
    let (ones, twos) = (b.constant([1.0; 8]), b.constant([2.0; 8]));
    let row = b.weight("row", DType::F32, 1, 8);
    let divided = b.div(twos, row);
    let sum = b.add(divided, ones);
    let product = b.mul(sum, twos);
    let active = b.silu(product);
    let w = b.weight("norm", DType::F32, 1, 4);
    let normed = b.rms_norm(active, w, 1e-5);
    let y = b.mul(x, normed);
    let graph = b.finish(y).unwrap();

    let mut weights = weights_for(&graph, 1);
    weights.insert("row".into(), vec![1.0, -3.0, 0.7, 2.0, 1e-3, 1e3, -0.1, 5.0]);
    let Optimized { graph: folded, report } = run(&[&ConstantFolding], &graph, &weights);
    assert_eq!(report, [("constant_folding", 5)]);
    assert_eq!(ops(&folded), HashMap::from([("embed", 1), ("mul", 1), ("select_outputs", 1)]));

    // The only error is the rounding of each fold to f32.
    let step = &steps(VOCABULARY)[0];
    let values = Interpreter::new(&weights).run_all(&graph, step);
    let expected = values[normed.index()].as_ref().unwrap();
    let found = folded.values().iter().find_map(|value| match &value.source {
        Source::Constant(row) => Some(row.clone()),
        Source::Tokens | Source::Weight { .. } | Source::Node { .. } => None,
    });
    for (expected, found) in expected.data.iter().zip(&*found.unwrap()) {
        assert!((expected - f64::from(*found)).abs() <= 1e-6 * expected.abs().max(1e-3), "{found} is not {expected}");
    }
}

#[test]
fn folding_leaves_unknown_operands_and_matrices() {
    let (mut b, x) = start();
    let row = b.constant([3.0; 8]);
    for (name, dtype) in [("half", DType::F16), ("absent", DType::F32)] {
        let weight = b.weight(name, dtype, 1, 8);
        let divided = b.div(row, weight);
        let scaled = b.mul(x, divided);
        b.add(scaled, x);
    }
    let matrix = square(&mut b, "matrix");
    let scaled = b.mul(matrix, row);
    let y = b.matmul(x, scaled);
    let graph = b.finish(y).unwrap();

    let asked = std::cell::RefCell::new(Vec::new());
    let vector = |slice: &TensorSlice, _| {
        asked.borrow_mut().push(slice.to_string());
        None
    };
    let target = Target { supports: &|_| true, vector: &vector };
    let optimized = optimize_with(&[&ConstantFolding], &graph, &target).unwrap();
    assert_eq!(optimized.report[0].1, 0);
    assert_eq!(*asked.borrow(), ["absent"], "only F32 vectors whose node has no unknown operand are looked up");
}

#[test]
fn equal_nodes_weights_and_constants_are_merged() {
    let (mut b, x) = start();
    let halves: Vec<_> = (0..2)
        .map(|_| {
            let y = matmul(&mut b, x, "matrix");
            let row = b.constant([0.5; 8]);
            let y = b.mul(y, row);
            norm(&mut b, y)
        })
        .collect();
    let y = b.add(halves[0], halves[1]);
    let graph = b.finish(y).unwrap();

    let (rewritten, rewrites) = run_one(&CommonSubexpressions, &graph);
    // Matrix, constant and norm weight; product, scaling and norm.
    assert_eq!(rewrites, 6);
    let expected = [("embed", 1), ("matmul", 1), ("mul", 1), ("rms_norm", 1), ("add", 1), ("select_outputs", 1)];
    assert_eq!(ops(&rewritten), HashMap::from(expected));
}

#[test]
fn different_attributes_constants_and_stateful_ops_are_not_merged() {
    let (mut b, x) = start();
    let w = b.weight("norm", DType::F32, 1, 8);
    let (a, c) = (b.rms_norm(x, w, 1e-6), b.rms_norm(x, w, 1e-5));
    let cache = inkstone::internals::graph::LayerCache { kv_heads: 1, head_dim: 8, keys_only: false };
    let (d, e) = (b.attention([x, x, x], cache, 1, 1.0), b.attention([x, x, x], cache, 1, 1.0));
    let (zero, negative) = (b.constant([0.0; 8]), b.constant([-0.0; 8]));
    let (f, g) = (b.add(x, zero), b.add(x, negative));
    let sums: Vec<_> = [(a, c), (d, e), (f, g)].map(|(p, q)| b.add(p, q)).into();
    let y = b.add(sums[0], sums[1]);
    let y = b.add(y, sums[2]);
    let graph = b.finish(y).unwrap();
    assert_eq!(run_one(&CommonSubexpressions, &graph).1, 0);
}

#[test]
fn only_output_rows_are_computed_after_the_last_attention() {
    for graph in [qwen3_like(SMALL), llama_like(SMALL)] {
        let weights = weights_for(&graph, 1);
        let Optimized { graph: rewritten, report } = run(&[&PruneRows], &graph, &weights);
        assert_same_logits(&graph, &rewritten, &weights, SMALL.vocabulary);
        let nodes = rewritten.nodes();
        let last_attention = nodes.iter().rposition(|node| matches!(node.op, Op::Attention(_))).unwrap();
        let rest = &nodes[last_attention + 1..];
        // Every op but two selections: of the attention's result, and of the residual around it.
        let selections: Vec<_> = rest.iter().filter(|node| node.op == Op::SelectOutputs).collect();
        assert_eq!((selections.len(), count(&rewritten, &Op::SelectOutputs)), (2, 2));
        assert!(rest.iter().flat_map(|node| &node.outputs).all(|id| rewritten.shape(*id).rows == Rows::Outputs));
        assert_eq!(report[0].1, rest.len() - 2);
        assert_eq!(run(&[&PruneRows], &rewritten, &weights).report[0].1, 0);
    }
}

#[test]
fn rows_with_other_readers_are_not_pruned() {
    let (mut b, x) = start();
    let shared = matmul(&mut b, x, "shared");
    let active = b.silu(shared);
    let cache = inkstone::internals::graph::LayerCache { kv_heads: 1, head_dim: 8, keys_only: false };
    let attended = b.attention([x, shared, x], cache, 1, 1.0);
    let first = b.push(Op::SelectOutputs, &[active]);
    let second = b.push(Op::SelectOutputs, &[shared]);
    let y = b.add(first, second);
    let third = b.push(Op::SelectOutputs, &[attended]);
    let y = b.add(y, third);
    let graph = b.finish(y).unwrap();

    let (rewritten, rewrites) = run_one(&PruneRows, &graph);
    assert_eq!(rewrites, 1, "only the activation is pruned");
    assert_eq!(count(&rewritten, &Op::SelectOutputs), 2, "two readers of one value share a selection");
    let product = rewritten.nodes().iter().find(|node| node.op == Op::MatMul).unwrap();
    assert_eq!(rewritten.shape(product.outputs[0]).rows, Rows::Tokens);
}

#[test]
fn gate_and_up_fuse_in_either_order() {
    for swapped in [false, true] {
        let (mut b, x) = start();
        let (gate, up) = (matmul(&mut b, x, "gate"), matmul(&mut b, x, "up"));
        let active = b.silu(gate);
        let y = if swapped { b.mul(up, active) } else { b.mul(active, up) };
        let graph = b.finish(y).unwrap();

        let (rewritten, rewrites) = run_one(&GluFusion, &graph);
        assert_eq!(rewrites, 1);
        assert_eq!(ops(&rewritten), HashMap::from([("embed", 1), ("matmul_swiglu", 1), ("select_outputs", 1)]));
        let glu = rewritten.nodes().iter().find(|node| node.op == GLU).unwrap();
        let names: Vec<_> = glu.inputs[1..].iter().map(|id| weight_name(&rewritten, *id)).collect();
        assert_eq!(names, ["gate", "up"]);
    }
}

fn weight_name(graph: &Graph, id: ValueId) -> String {
    match &graph.value(id).source {
        Source::Weight { slice, .. } => slice.to_string(),
        Source::Tokens | Source::Constant(_) | Source::Node { .. } => String::new(),
    }
}

#[test]
fn glu_of_two_inputs_or_shared_products_does_not_fuse() {
    // The products have different inputs.
    let (mut b, x) = start();
    let other = norm(&mut b, x);
    let (gate, up) = (matmul(&mut b, x, "gate"), matmul(&mut b, other, "up"));
    let active = b.silu(gate);
    let y = b.mul(active, up);
    assert_eq!(run_one(&GluFusion, &b.finish(y).unwrap()).1, 0);

    // A product has another reader.
    for shared in 0..3 {
        let (mut b, x) = start();
        let (gate, up) = (matmul(&mut b, x, "gate"), matmul(&mut b, x, "up"));
        let active = b.silu(gate);
        let y = b.mul(active, up);
        let y = b.add(y, [gate, up, active][shared]);
        assert_eq!(run_one(&GluFusion, &b.finish(y).unwrap()).1, 0);
    }
}

#[test]
fn gate_and_norm_of_heads_fuse_in_either_order() {
    for (swapped, len) in [(false, 4), (true, 4), (false, 8)] {
        let (mut b, x) = start();
        let gate = matmul(&mut b, x, "gate");
        let weight = b.weight("heads", DType::F32, 1, len);
        let normed = b.rms_norm(x, weight, 1e-6);
        let active = b.silu(gate);
        let y = if swapped { b.mul(active, normed) } else { b.mul(normed, active) };

        let (rewritten, rewrites) = run_one(&GatedFusion, &b.finish(y).unwrap());
        assert_eq!(rewrites, 1);
        let mut expected = HashMap::from([("embed", 1), ("matmul", 1), ("gated", 1), ("select_outputs", 1)]);
        // The norm of a whole row stays.
        expected.extend((len == 8).then_some(("rms_norm", 1)));
        assert_eq!(ops(&rewritten), expected);
    }
}

#[test]
fn shared_activations_norms_and_vectors_do_not_fuse_with_a_gate() {
    // The activation has another reader.
    let (mut b, x) = start();
    let active = b.silu(x);
    let y = b.mul(active, x);
    let y = b.add(y, active);
    assert_eq!(run_one(&GatedFusion, &b.finish(y).unwrap()).1, 0);

    // The gate has one row.
    let (mut b, x) = start();
    let row = b.weight("row", DType::F32, 1, 8);
    let active = b.silu(row);
    let y = b.mul(x, active);
    assert_eq!(run_one(&GatedFusion, &b.finish(y).unwrap()).1, 0);

    // The norm has another reader, and stays.
    let (mut b, x) = start();
    let weight = b.weight("heads", DType::F32, 1, 4);
    let normed = b.rms_norm(x, weight, 1e-6);
    let active = b.silu(x);
    let y = b.mul(normed, active);
    let y = b.add(y, normed);
    let (rewritten, rewrites) = run_one(&GatedFusion, &b.finish(y).unwrap());
    assert_eq!((rewrites, count(&rewritten, &Op::RmsNorm { eps: 1e-6 })), (1, 1));
}

#[test]
fn product_and_residual_fuse_in_either_order() {
    for swapped in [false, true] {
        let (mut b, x) = start();
        let y = norm(&mut b, x);
        let product = matmul(&mut b, y, "matrix");
        let sum = if swapped { b.add(product, x) } else { b.add(x, product) };
        let graph = b.finish(sum).unwrap();

        let (rewritten, rewrites) = run_one(&MatMulAddFusion, &graph);
        assert_eq!(rewrites, 1);
        let expected = [("embed", 1), ("rms_norm", 1), ("matmul_add", 1), ("select_outputs", 1)];
        assert_eq!(ops(&rewritten), HashMap::from(expected));
    }
}

#[test]
fn sum_of_two_products_fuses_one_of_them() {
    let (mut b, x) = start();
    let (p, q) = (matmul(&mut b, x, "p"), matmul(&mut b, x, "q"));
    let sum = b.add(p, q);
    let (rewritten, rewrites) = run_one(&MatMulAddFusion, &b.finish(sum).unwrap());
    assert_eq!(
        (rewrites, count(&rewritten, &Op::MatMul), count(&rewritten, &Op::Fused(FusedOp::MatMulAdd))),
        (1, 1, 1)
    );
}

#[test]
fn bias_or_shared_product_does_not_fuse_with_a_sum() {
    let (mut b, x) = start();
    let product = matmul(&mut b, x, "matrix");
    let bias = b.weight("bias", DType::F32, 1, 8);
    let y = b.add(product, bias);
    assert_eq!(run_one(&MatMulAddFusion, &b.finish(y).unwrap()).1, 0);

    let (mut b, x) = start();
    let product = matmul(&mut b, x, "matrix");
    let sum = b.add(x, product);
    let y = b.mul(sum, product);
    assert_eq!(run_one(&MatMulAddFusion, &b.finish(y).unwrap()).1, 0);
}

#[test]
fn sum_and_norm_fuse_even_if_the_sum_has_other_readers() {
    for read_again in [false, true] {
        let (mut b, x) = start();
        let y = b.silu(x);
        let sum = b.add(x, y);
        let mut z = norm(&mut b, sum);
        if read_again {
            z = b.mul(z, sum);
        }
        let (rewritten, rewrites) = run_one(&AddNormFusion, &b.finish(z).unwrap());
        let left = ops(&rewritten);
        assert_eq!((rewrites, left["add_rms_norm"]), (1, 1));
        assert!(!left.contains_key("add") && !left.contains_key("rms_norm"));
    }
}

#[test]
fn product_sum_and_norm_fuse_even_if_the_sum_has_other_readers() {
    for read_again in [false, true] {
        let (mut b, x) = start();
        let w = b.weight("w", DType::F32, 8, 8);
        let sum = b.push(FusedOp::MatMulAdd, &[x, w, x]);
        let mut z = norm(&mut b, sum);
        if read_again {
            z = b.mul(z, sum);
        }
        let (rewritten, rewrites) = run_one(&MatMulAddNormFusion, &b.finish(z).unwrap());
        let left = ops(&rewritten);
        assert_eq!((rewrites, left["matmul_add_rms_norm"]), (1, 1));
        assert!(!left.contains_key("matmul_add") && !left.contains_key("rms_norm"));
    }
}

/// Returns a graph with attention over queries (0) and keys (1) that `head` makes from the
/// embeddings.
fn attention_over(head: impl Fn(&mut Builder, ValueId, usize) -> ValueId) -> Graph {
    let (mut b, x) = start();
    let [q, k] = [0, 1].map(|operand| head(&mut b, x, operand));
    let y = b.attention([q, k, x], LayerCache { kv_heads: 2, head_dim: 4, keys_only: false }, 2, 0.5);
    b.finish(y).unwrap()
}

#[test]
fn rotations_fuse_with_attention_and_with_the_norms_if_both_have_one() {
    let rope = RopeSpec { style: RopeStyle::Halves, head_dim: 4, axes: RopeAxes::First };
    for normed in [[false; 2], [true, false], [true; 2]] {
        let graph = attention_over(|b, x, operand| {
            let y = matmul(b, x, ["q", "k"][operand]);
            let w = b.constant([1.0, 2.0, 3.0, 4.0]);
            let y = if normed[operand] { b.rms_norm(y, w, 1e-6) } else { y };
            let frequencies = b.constant([1.0, 0.5]);
            b.rope(y, frequencies, rope)
        });
        // Equal constants become one value.
        let (graph, _) = run_one(&CommonSubexpressions, &graph);
        let (rewritten, rewrites) = run_one(&RotatedAttentionFusion, &graph);
        let left = ops(&rewritten);
        assert_eq!((rewrites, left["rotated_attention"], left.get("rope")), (1, 1, None));
        let norms = if normed == [true, false] { Some(&1) } else { None };
        assert_eq!(left.get("rms_norm"), norms);
    }
}

#[test]
fn missing_or_different_rotations_do_not_fuse() {
    let rope = RopeSpec { style: RopeStyle::Halves, head_dim: 4, axes: RopeAxes::First };
    let other = RopeSpec { style: RopeStyle::Adjacent, head_dim: 4, axes: RopeAxes::First };
    for (q_rope, k_rope) in [(Some(rope), None), (None, None), (Some(rope), Some(other))] {
        let graph = attention_over(|b, x, operand| {
            let y = matmul(b, x, ["q", "k"][operand]);
            let frequencies = b.constant([1.0, 0.5]);
            [q_rope, k_rope][operand].map_or(y, |spec| b.rope(y, frequencies, spec))
        });
        let (graph, _) = run_one(&CommonSubexpressions, &graph);
        assert_eq!(run_one(&RotatedAttentionFusion, &graph).1, 0);
    }
}

#[test]
fn norm_of_heads_or_of_a_biased_row_does_not_fuse() {
    let (mut b, x) = start();
    let y = b.silu(x);
    let sum = b.add(x, y);
    let w = b.weight("head_norm", DType::F32, 1, 4);
    let z = b.rms_norm(sum, w, 1e-6);
    assert_eq!(run_one(&AddNormFusion, &b.finish(z).unwrap()).1, 0);

    let (mut b, x) = start();
    let bias = b.weight("bias", DType::F32, 1, 8);
    let sum = b.add(x, bias);
    let z = norm(&mut b, sum);
    assert_eq!(run_one(&AddNormFusion, &b.finish(z).unwrap()).1, 0);
}

#[test]
fn products_of_one_input_merge_across_other_nodes() {
    let (mut b, x) = start();
    let q = matmul(&mut b, x, "q");
    let q = b.silu(q);
    let k = b.weight("k", DType::F32, 3, 8);
    let k = b.matmul(x, k);
    let k = b.silu(k);
    let back = b.weight("back", DType::F32, 8, 3);
    let k = b.matmul(k, back);
    let v = matmul(&mut b, x, "v");
    let y = b.add(q, k);
    let y = b.add(y, v);
    let (rewritten, rewrites) = run_one(&MergeMatMuls, &b.finish(y).unwrap());
    assert_eq!(
        (rewrites, count(&rewritten, &Op::Fused(FusedOp::MatMulJoined)), count(&rewritten, &Op::MatMul)),
        (1, 1, 1)
    );
    let joined = rewritten.nodes().iter().find(|node| node.op == Op::Fused(FusedOp::MatMulJoined)).unwrap();
    assert_eq!(joined.outputs.iter().map(|id| rewritten.shape(*id).width).collect::<Vec<_>>(), [8, 3, 8]);
}

#[test]
fn transformers_have_the_expected_ops_after_all_passes() {
    let always = [("embed", 1), ("rotated_attention", 2), ("matmul_joined", 2), ("matmul_swiglu", 2)];
    let qwen3 = qwen3_like(SMALL);
    let weights = weights_for(&qwen3, 1);
    let optimized = run(&PASSES, &qwen3, &weights);
    assert_same_logits(&qwen3, &optimized.graph, &weights, SMALL.vocabulary);
    // The first norm follows no product, and no norm follows the last product, the output head.
    let own = [("rms_norm", 1), ("matmul_add_rms_norm", 4), ("matmul", 1), ("select_outputs", 2)];
    assert_eq!(ops(&optimized.graph), always.into_iter().chain(own).collect());

    let llama = llama_like(SMALL);
    let weights = weights_for(&llama, 1);
    let optimized = run(&PASSES, &llama, &weights);
    assert_same_logits(&llama, &optimized.graph, &weights, SMALL.vocabulary);
    // The output projection's bias is between the product and the residual, so the sum fuses with
    // the norm.
    let own = [
        ("rms_norm", 1),
        ("add_rms_norm", 2),
        ("matmul_add_rms_norm", 2),
        ("add", 8),
        ("matmul", 3),
        ("select_outputs", 2),
    ];
    assert_eq!(ops(&optimized.graph), always.into_iter().chain(own).collect());
    assert_eq!(optimized.report[1], ("constant_folding", 4));
    assert!(!optimized.graph.to_string().contains("rope_freqs"));
}

#[test]
fn only_supported_ops_are_fused() {
    let graph = llama_like(SMALL);
    let target = Target { supports: &|_| false, vector: &|_, _| None };
    let plain = optimize(&graph, &target).unwrap();
    let fused: usize = plain.report[4..].iter().map(|(_, rewrites)| rewrites).sum();
    assert_eq!(fused, 0);
    assert_same_logits(&graph, &plain.graph, &weights_for(&graph, 1), SMALL.vocabulary);
}

/// A wrong pass, which returns the graph of another model.
struct Broken;

impl Pass for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn run(&self, _: &Graph, _: &Target<'_>) -> inkstone::Result<(Graph, usize)> {
        let (b, x) = start();
        Ok((b.finish(x)?, 1))
    }
}

#[test]
fn errors_name_the_broken_pass() {
    let target = Target { supports: &|_| true, vector: &|_, _| None };
    let error = optimize_with(&[&DeadCode, &Broken], &qwen3_like(SMALL), &target).unwrap_err();
    assert!(matches!(&error, Error::Internal(what) if what.contains("after pass `broken`")), "{error}");
}

fn choices() -> impl Strategy<Value = Vec<graphs::Choice>> {
    prop::collection::vec(any::<graphs::Choice>(), 0..24)
}

proptest! {
    /// Any prefix of the passes, for any set of supported ops, keeps the logits of random graphs.
    #[test]
    fn optimized_random_graphs_have_the_same_logits(choices in choices(), passes in 0..=PASSES.len(), has in any::<[bool; 7]>()) {
        let graph = random_graph(&choices);
        let weights = weights_for(&graph, 2);
        let supports = |op: &FusedOp| match op {
            FusedOp::MatMulJoined => has[0],
            FusedOp::MatMulGlu(_) => has[1],
            FusedOp::MatMulAdd => has[2],
            FusedOp::AddRmsNorm { .. } => has[3],
            FusedOp::MatMulAddRmsNorm { .. } => has[4],
            FusedOp::RotatedAttention { .. } => has[5],
            FusedOp::Gated { .. } => has[6],
        };
        let vector = |slice: &TensorSlice, _| weights.get(&*slice.name).map(|row| Arc::from(row.as_slice()));
        let optimized = optimize_with(&PASSES[..passes], &graph, &Target { supports: &supports, vector: &vector }).unwrap();
        prop_assert!(optimized.graph.nodes().iter().filter_map(|node| node.op.fused()).all(supports));
        assert_same_logits(&graph, &optimized.graph, &weights, VOCABULARY);
    }
}
