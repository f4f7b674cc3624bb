//! Runs a small model through every kind of CPU kernel, on one thread and on three, and compares the results bit for bit.
//! It reads no file, so that Miri can run it (`.ci/miri`) and watch memory and threads.

use inkstone::{
    CacheType, DType,
    backend::{Backend, cpu::Cpu},
    generate::{Decoder, Limits, Wanted},
    graph::{
        Activation, Builder, DeltaSpec, ExpertsSpec, FusedOp, Graph, HeadOrder, LayerCache, RopeSpec, RopeStyle, Rows,
        Source,
    },
    kv_cache::{CacheLayout, KvCache},
    weights::Weights,
};

const VOCABULARY: usize = 20;
/// A block of the K formats.
const WIDTH: usize = 256;
const FEED_FORWARD: usize = 32;
const HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const EXPERTS: usize = 3;

/// One layer of attention, one of a gated delta rule, one of experts.
fn graph() -> Graph {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let table = b.weight("table", DType::Q8_0, VOCABULARY, WIDTH);
    let norm = b.weight("norm", DType::F32, 1, WIDTH);
    let x = b.embed(table, tokens);
    let heads = HEADS * HEAD_DIM;

    let h = b.rms_norm(x, norm, 1e-6);
    let [q, k, v] = [("q", DType::Q4_K), ("k", DType::Q6_K), ("v", DType::Q5_K)]
        .map(|(name, dtype)| b.weight(name, dtype, heads, WIDTH));
    let qkv = b.push_all(FusedOp::MatMulJoined, &[h, q, k, v]);
    let frequencies = b.constant([0.7; HEAD_DIM / 2]);
    let spec = RopeSpec { style: RopeStyle::Halves, head_dim: HEAD_DIM };
    let [q, k] = [0, 1].map(|n| b.rope(qkv[n], frequencies, spec));
    let a = b.attention([q, k, qkv[2]], LayerCache { kv_heads: HEADS, head_dim: HEAD_DIM }, HEADS, 0.25);
    let o = b.weight("o", DType::F16, WIDTH, heads);
    let x = b.push(FusedOp::MatMulAdd, &[a, o, x]);

    let h = b.rms_norm(x, norm, 1e-6);
    let mixed = b.weight("mixed", DType::Q4_0, 3 * heads, WIDTH);
    let kernel = b.weight("kernel", DType::F32, 3 * heads, 3);
    let mixed = b.matmul(h, mixed);
    let mixed = b.short_conv(mixed, kernel);
    let [alpha, beta] = ["alpha", "beta"].map(|name| b.weight(name, DType::Q5_1, HEADS, WIDTH));
    let [alpha, beta] = [alpha, beta].map(|w| b.matmul(h, w));
    let [a, dt] = [-0.5, 0.1].map(|number| b.constant([number; HEADS]));
    let order = HeadOrder::Tiled;
    let spec = DeltaSpec { state: 0, key_heads: HEADS, value_heads: HEADS, order, head_dim: HEAD_DIM, eps: 1e-6 };
    let y = b.gated_delta([mixed, alpha, beta, a, dt], spec);
    let out = b.weight("out", DType::BF16, WIDTH, heads);
    let x = b.push(FusedOp::MatMulAdd, &[y, out, x]);

    let h = b.rms_norm(x, norm, 1e-6);
    let router = b.weight("router", DType::F32, EXPERTS, WIDTH);
    let scores = b.matmul(h, router);
    let weights = b.route(scores, 2);
    let [gate, up] = [("gate", DType::Q3_K), ("up", DType::Q2_K)]
        .map(|(name, dtype)| b.weight(name, dtype, EXPERTS * FEED_FORWARD, WIDTH));
    let down = b.weight("down", DType::IQ4_NL, EXPERTS * WIDTH, FEED_FORWARD);
    let spec = ExpertsSpec { experts: EXPERTS, top_k: 2, activation: Activation::Silu };
    let y = b.experts(h, weights, &[gate, up, down], spec);
    let x = b.add(x, y);
    let x = b.soft_cap(x, 30.0);
    let logits = b.matmul(x, table);
    b.finish(logits).unwrap()
}

/// Weights of any bytes that are small numbers as f16 and f32.
fn weights(graph: &Graph) -> Weights {
    let mut tensors: Vec<(String, DType, Vec<usize>, Vec<u8>)> = vec![];
    for value in graph.values() {
        let Source::Weight { slice, dtype } = &value.source else { continue };
        let Rows::Fixed(rows) = value.shape.rows else { panic!("{slice}: a weight has fixed rows") };
        let len = dtype.row_bytes(value.shape.width).unwrap() * rows;
        let bytes = (0..len).map(|n| 0x24 + (n * n * 7 + n) as u8 % 11).collect();
        if tensors.iter().all(|tensor| tensor.0 != *slice.name) {
            tensors.push((slice.name.to_string(), *dtype, vec![rows, value.shape.width], bytes));
        }
    }
    Weights::from_memory(tensors).unwrap()
}

/// Returns the logits after a prompt of three tokens and after one more, `[2, VOCABULARY]`.
fn logits(threads: usize, cache_type: CacheType) -> Vec<f32> {
    let graph = graph();
    let cpu = Cpu::with_instruction_set(Some(threads), "portable").unwrap();
    let layout = CacheLayout::new(&graph, cache_type).unwrap();
    let limits = Limits { vocab_size: VOCABULARY, max_tokens: 8, max_outputs: 1 };
    let executable = cpu.compile(&graph, &weights(&graph), &layout, limits.max_tokens, 1).unwrap();
    let mut decoder = Decoder::new(executable, KvCache::new(&layout, 64), limits);
    let sequence = decoder.open();
    let mut all = vec![];
    for tokens in [&[3, 1, 4][..], &[1]] {
        all.extend_from_slice(decoder.step(&[(sequence, tokens, Wanted::Last)]).unwrap());
    }
    all
}

#[test]
fn kernels_give_the_same_on_any_number_of_threads() {
    for cache_type in [CacheType::F16, CacheType::Q8_0] {
        let alone = logits(1, cache_type);
        assert!(alone.iter().all(|logit| logit.is_finite()), "{alone:?}");
        assert!(alone.iter().any(|logit| *logit != alone[0]), "{alone:?}");
        assert_eq!(alone, logits(3, cache_type));
    }
}
