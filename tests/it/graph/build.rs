//! Tests the dumps of graphs, and the errors of the builder and of `verify`.

use inkstone::{
    DType, Error,
    internals::graph::{
        Activation, AttentionSpec, Builder, ExpertsSpec, FusedOp, Graph, LayerCache, Op, Rewriter, RopeAxes, RopeSpec,
        RopeStyle, Rows, Shape, ValueId,
    },
};

/// Returns a graph with every element that a dump can show.
fn sample() -> Graph {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let table = b.weight("token_embd.weight", DType::Q6_K, 1000, 256);
    let x = b.embed(table, tokens);
    let norm = b.weight("a \"norm\"", DType::F32, 1, 256);
    let y = b.rms_norm(x, norm, 1e-6);
    let [wq, wk] = ["q", "k"].map(|name| b.weight(name, DType::Q4_K, 256, 256));
    let joined = b.push_all(FusedOp::MatMulJoined, &[y, wq, wk]);
    let frequencies = b.constant([1.0, 0.5, 0.25, 0.125, 0.0625]);
    let q = b.rope(joined[0], frequencies, RopeSpec { style: RopeStyle::Halves, head_dim: 64, axes: RopeAxes::First });
    let attended = b.attention([q, joined[1], y], LayerCache { kv_heads: 4, head_dim: 64, keys_only: false }, 4, 0.125);
    let y = b.add(x, attended);
    let logits = b.matmul(y, table);
    b.finish(logits).unwrap()
}

#[test]
fn text_dump_has_a_line_for_each_node() {
    let expected = "\
%2 [Tokens, 256] = embed (token_embd.weight Q6_K [1000, 256], tokens)
%4 [Tokens, 256] = rms_norm eps=1e-6 (%2, a \"norm\" F32 [1, 256])
%7 [Tokens, 256], %8 [Tokens, 256] = matmul_joined (%4, q Q4_K [256, 256], k Q4_K [256, 256])
%10 [Tokens, 256] = rope style=halves head_dim=64 (%7, constant [1, 5] {1.0, 0.5, 0.25, 0.125, ..})
%11 [Tokens, 256] = attention layer=0 heads=4 kv_heads=4 head_dim=64 scale=0.125 (%10, %8, %4)
%12 [Tokens, 256] = add (%2, %11)
%13 [Tokens, 1000] = matmul (%12, token_embd.weight Q6_K [1000, 256])
%14 [Outputs, 1000] = select_outputs (%13)
logits %14 [Outputs, 1000]
";
    assert_eq!(sample().to_string(), expected);
}

#[test]
fn graphviz_dump_has_boxes_and_arrows() {
    let expected = r#"digraph {
  node [shape=box];
  tokens;
  n0 [label="embed\ntoken_embd.weight Q6_K [1000, 256]"];
  n1 [label="rms_norm eps=1e-6\na \"norm\" F32 [1, 256]"];
  n2 [label="matmul_joined\nq Q4_K [256, 256]\nk Q4_K [256, 256]"];
  n3 [label="rope style=halves head_dim=64\nconstant [1, 5] {1.0, 0.5, 0.25, 0.125, ..}"];
  n4 [label="attention layer=0 heads=4 kv_heads=4 head_dim=64 scale=0.125"];
  n5 [label="add"];
  n6 [label="matmul\ntoken_embd.weight Q6_K [1000, 256]"];
  n7 [label="select_outputs"];
  logits;
  tokens -> n0 [label="[Tokens, 1]"];
  n0 -> n1 [label="[Tokens, 256]"];
  n1 -> n2 [label="[Tokens, 256]"];
  n2 -> n3 [label="[Tokens, 256]"];
  n3 -> n4 [label="[Tokens, 256]"];
  n2 -> n4 [label="[Tokens, 256]"];
  n1 -> n4 [label="[Tokens, 256]"];
  n0 -> n5 [label="[Tokens, 256]"];
  n4 -> n5 [label="[Tokens, 256]"];
  n5 -> n6 [label="[Tokens, 256]"];
  n6 -> n7 [label="[Tokens, 1000]"];
  n7 -> logits [label="[Outputs, 1000]"];
}
"#;
    assert_eq!(sample().dot(), expected);
}

/// Returns the error of a graph with this op over a value `[Tokens, 8]`, a matrix `[4, 8]` and a
/// row of 8 elements.
fn builder_error(op: Op, operands: &[usize]) -> String {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let table = b.weight("table", DType::F32, 10, 8);
    let x = b.embed(table, tokens);
    let operand = [x, b.weight("matrix", DType::F32, 4, 8), b.constant([1.0; 8])];
    let operands: Vec<ValueId> = operands.iter().map(|index| operand[*index]).collect();
    let y = b.push(op, &operands);
    // Later errors must not replace the first one.
    let z = b.silu(y);
    let logits = b.add(z, x);
    match b.finish(logits) {
        Err(Error::Internal(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn builder_reports_the_first_error() {
    let attention = |heads, kv_heads, head_dim| {
        Op::Attention(AttentionSpec { layer: 0, heads, kv_heads, head_dim, keys_only: false, scores: 1.0.into() })
    };
    let rope = |head_dim| Op::Rope(RopeSpec { style: RopeStyle::Halves, head_dim, axes: RopeAxes::First });
    let experts =
        |experts, top_k| Op::Experts(ExpertsSpec { experts, top_k, glu: Activation::Silu.into(), biased: false });
    let cases: [(Op, &[usize]); 26] = [
        (Op::Embed, &[1, 0]),
        (Op::MatMul, &[0, 0]),
        (Op::MatMul, &[1]),
        (Op::Add, &[0, 1]),
        (Op::Mul, &[2, 0]),
        (Op::Activate(Activation::Silu), &[]),
        (Op::RmsNorm { eps: 0.0 }, &[0, 1]),
        (rope(8), &[0, 2]),
        (rope(0), &[0, 2]),
        (attention(3, 2, 4), &[0, 0, 0]),
        (attention(1, 0, 8), &[0, 0, 0]),
        (attention(usize::MAX, 1, 8), &[0, 0, 0]),
        (attention(1, 1, 8), &[0, 0, 0]),
        (Op::SelectOutputs, &[1]),
        (Op::Route(0.into()), &[0]),
        (Op::Route(9.into()), &[0]),
        (experts(8, 9), &[0, 0, 1, 1]),
        (experts(8, 0), &[0, 0, 1, 1]),
        (experts(8, 2), &[0, 0, 1, 1, 1]),
        (experts(usize::MAX, 2), &[0]),
        (Op::Fused(FusedOp::MatMulJoined), &[0]),
        (Op::Fused(FusedOp::MatMulGlu(Activation::Silu)), &[0, 1]),
        (Op::Fused(FusedOp::MatMulAdd), &[0, 1, 0]),
        (Op::Fused(FusedOp::AddRmsNorm { eps: 0.0 }), &[0, 2, 2]),
        (Op::Fused(FusedOp::Gated { activation: Activation::Silu, norm: None }), &[0, 1]),
        (Op::Fused(FusedOp::Gated { activation: Activation::Silu, norm: Some(0.0) }), &[0, 0]),
    ];
    for (op, operands) in cases {
        let what = builder_error(op.clone(), operands);
        assert!(what.starts_with(&format!("node 1 ({}): ", op.name())), "{op} of {operands:?}: {what}");
    }
    assert_eq!(
        builder_error(Op::MatMul, &[0, 0]),
        "node 1 (matmul): needs matrices whose columns match x, but got [Tokens, 8] [Tokens, 8]"
    );
}

#[test]
fn empty_values_and_shared_cache_layers_are_refused() {
    let build = |rows, layers: &[usize]| {
        let mut b = Builder::new();
        let tokens = b.tokens();
        let table = b.weight("table", DType::F32, rows, 8);
        let mut x = b.embed(table, tokens);
        x = b.attention([x, x, x], LayerCache { kv_heads: 1, head_dim: 8, keys_only: false }, 1, 1.0);
        for layer in layers {
            let spec = AttentionSpec {
                layer: *layer,
                heads: 1,
                kv_heads: 1,
                head_dim: 8,
                keys_only: false,
                scores: 1.0.into(),
            };
            x = b.push(Op::Attention(spec), &[x, x, x]);
        }
        b.finish(x)
    };
    assert_eq!(build(3, &[]).unwrap().shape(build(3, &[]).unwrap().logits()), Shape::new(Rows::Outputs, 8));
    for (graph, named) in [(build(0, &[]), "value %1"), (build(3, &[0]), "node 2"), (build(3, &[1]), "node 2")] {
        let error = graph.unwrap_err();
        assert!(matches!(&error, Error::Internal(what) if what.starts_with(named)), "{error}");
    }
}

#[test]
fn rewriter_keeps_replaced_results_when_it_copies_their_node() {
    let graph = sample();
    let mut rewriter = Rewriter::new(&graph);
    for (index, node) in graph.nodes().iter().enumerate() {
        if node.op == Op::Fused(FusedOp::MatMulJoined) {
            // One of two products is replaced before their node is copied.
            let inputs = rewriter.renamed_all(&[node.inputs[0], node.inputs[2]]);
            rewriter.fuse(Op::MatMul, &inputs, &node.outputs[1..]);
        }
        rewriter.copy(index);
    }
    let rewritten = rewriter.finish().unwrap();
    let attention = rewritten.nodes().iter().find(|node| matches!(node.op, Op::Attention(_))).unwrap();
    assert_eq!(rewritten.producer(attention.inputs[1]).unwrap().op, Op::MatMul);
}
