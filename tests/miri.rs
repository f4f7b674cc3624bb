//! Runs a small model through every kind of CPU kernel, on several numbers of threads, and compares
//! the results bit for bit. It reads no file, so that Miri can run it (`.ci/miri`) and watch memory
//! and threads.

use inkstone::{
    CacheType, DType, Decoder, LogitsFor,
    internals::{
        backend::{Backend, cpu::Cpu},
        generate::Limits,
        graph::{
            Activation, Builder, DeltaSpec, ExpertsSpec, Graph, HeadOrder, LayerCache, RopeAxes, RopeSpec, RopeStyle,
            Rows, ScanSpec, Source,
        },
        kv_cache::{CacheLayout, KvCache},
        optimize::{Target, optimize},
        weights::Weights,
    },
};

const VOCABULARY: usize = 20;
/// A block of the K formats.
const WIDTH: usize = 256;
const FEED_FORWARD: usize = 32;
const HEADS: usize = 1;
const HEAD_DIM: usize = 32;
const EXPERTS: usize = 2;

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
    let [q, k, v] = [q, k, v].map(|w| b.matmul(h, w));
    let frequencies = b.constant([0.7; HEAD_DIM / 2]);
    let spec = RopeSpec { style: RopeStyle::Halves, head_dim: HEAD_DIM, axes: RopeAxes::First };
    let [q, k] = [q, k].map(|x| b.rope(x, frequencies, spec));
    let a = b.attention([q, k, v], LayerCache { kv_heads: HEADS, head_dim: HEAD_DIM, keys_only: false }, HEADS, 0.25);
    let shared = LayerCache { kv_heads: HEADS, head_dim: HEAD_DIM, keys_only: true };
    let to_keys = b.attention_to_keys([q, k], shared, HEADS, 0.25);
    let a = b.add(a, to_keys);
    let o = b.weight("o", DType::F16, WIDTH, heads);
    let a = b.matmul(a, o);
    let x = b.add(x, a);

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
    let scan = ScanSpec { state: 0, heads: HEADS, groups: HEADS, head_dim: HEAD_DIM, size: HEAD_DIM };
    let d = b.constant([0.3; HEADS]);
    let scanned = b.state_scan([mixed, alpha, a, dt, d], scan);
    let y = b.add(y, scanned);
    let out = b.weight("out", DType::BF16, WIDTH, heads);
    let y = b.matmul(y, out);
    let x = b.add(x, y);

    let h = b.rms_norm(x, norm, 1e-6);
    let of_heads = b.weight("of_heads", DType::Q4_1, WIDTH, 32);
    let h = b.matmul_heads(h, of_heads, WIDTH / 32);
    let router = b.weight("router", DType::F32, EXPERTS, WIDTH);
    let scores = b.matmul(h, router);
    let weights = b.route(scores, 1);
    let [gate, up] = [("gate", DType::Q3_K), ("up", DType::Q2_K)]
        .map(|(name, dtype)| b.weight(name, dtype, EXPERTS * FEED_FORWARD, WIDTH));
    let down = b.weight("down", DType::IQ4_NL, EXPERTS * WIDTH, FEED_FORWARD);
    let spec = ExpertsSpec { experts: EXPERTS, top_k: 1, glu: Activation::Silu.into(), biased: false };
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
        let Rows::Fixed(rows) = value.shape.rows else { panic!("{slice} has no fixed rows") };
        let len = dtype.row_bytes(value.shape.width).unwrap() * rows;
        let bytes = (0..len).map(|n| 0x24 + (n * n * 7 + n) as u8 % 11).collect();
        let name = slice.to_string();
        if tensors.iter().all(|tensor| tensor.0 != name) {
            tensors.push((name, *dtype, vec![rows, value.shape.width], bytes));
        }
    }
    Weights::from_memory(tensors).unwrap()
}

/// Returns the logits after a prompt of two tokens and after one more, `[2, VOCABULARY]`.
fn logits(threads: usize, cache_type: CacheType) -> Vec<f32> {
    let cpu = Cpu::with_instruction_set(Some(threads), "portable").unwrap();
    let target = Target { supports: &|op| cpu.supports(op), vector: &|_, _| None };
    let graph = optimize(&graph(), &target).unwrap().graph;
    let layout = CacheLayout::new(&graph, cache_type).unwrap();
    let limits = Limits { vocab_size: VOCABULARY, max_tokens: 8, max_outputs: 1 };
    let executable = cpu.compile(&graph, &weights(&graph), &layout, limits.max_tokens, 1).unwrap();
    let mut decoder = Decoder::new(executable, KvCache::new(&layout, 64), limits);
    let sequence = decoder.open();
    let mut all = vec![];
    for tokens in [&[3, 1][..], &[4]] {
        all.extend_from_slice(decoder.step(&[(sequence, tokens, LogitsFor::Last)]).unwrap());
    }
    all
}

#[test]
fn kernels_give_the_same_on_any_number_of_threads() {
    // Miri takes minutes for each.
    let cache_types: &[CacheType] = if cfg!(miri) { &[CacheType::F16] } else { &[CacheType::F16, CacheType::Q8_0] };
    let threads: &[usize] = if cfg!(miri) { &[2] } else { &[1, 2, 3] };
    for &cache_type in cache_types {
        let first = logits(threads[0], cache_type);
        assert!(first.iter().all(|logit| logit.is_finite()), "{first:?}");
        assert!(first.iter().any(|logit| *logit != first[0]), "{first:?}");
        assert!(threads[1..].iter().all(|&threads| logits(threads, cache_type) == first));
    }
}
