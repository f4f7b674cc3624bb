//! Makes graphs for tests of passes, plans and backends: two small families, random graphs, and
//! weights for them.

use std::collections::HashMap;

use inkstone::{
    DType,
    internals::graph::{Builder, Graph, LayerCache, Op, RopeAxes, RopeSpec, RopeStyle, Rows, Source, ValueId},
};

use super::interpret::{Run, Step, Weights};

/// A transformer's sizes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub layers: usize,
    pub embedding: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub feed_forward: usize,
    pub vocabulary: usize,
}

/// Small sizes with more query heads than key-value heads, and heads whose width is not the
/// embedding's.
pub const SMALL: Sizes =
    Sizes { layers: 2, embedding: 12, heads: 4, kv_heads: 2, head_dim: 8, feed_forward: 20, vocabulary: 17 };

/// Returns the sizes of Qwen3-0.6B, with another number of layers.
pub fn qwen3_0_6b(layers: usize) -> Sizes {
    Sizes { layers, embedding: 1024, heads: 16, kv_heads: 8, head_dim: 128, feed_forward: 3072, vocabulary: 151_936 }
}

/// Returns a transformer like Qwen3: head norms, halves rotated, a tied output matrix.
pub fn qwen3_like(sizes: Sizes) -> Graph {
    transformer(sizes, &Family { head_norms: true, biases: false, rope_freqs: false, tied: true, eps: 1e-6 })
}

/// Returns a transformer like Llama 3: adjacent elements rotated, divided frequencies, biases, an
/// output matrix that is not tied.
pub fn llama_like(sizes: Sizes) -> Graph {
    transformer(sizes, &Family { head_norms: false, biases: true, rope_freqs: true, tied: false, eps: 1e-5 })
}

struct Family {
    head_norms: bool,
    biases: bool,
    rope_freqs: bool,
    tied: bool,
    eps: f32,
}

fn transformer(sizes: Sizes, family: &Family) -> Graph {
    let b = &mut Builder::new();
    let Sizes { embedding, vocabulary, .. } = sizes;
    let tokens = b.tokens();
    let table = b.weight("token_embd.weight", DType::F32, vocabulary, embedding);
    let mut x = b.embed(table, tokens);
    for layer in 0..sizes.layers {
        x = attention_block(b, sizes, family, layer, x);
        x = feed_forward_block(b, sizes, family, layer, x);
    }
    let norm = b.weight("output_norm.weight", DType::F32, 1, embedding);
    let x = b.rms_norm(x, norm, family.eps);
    let head = if family.tied { table } else { b.weight("output.weight", DType::F32, vocabulary, embedding) };
    let logits = b.matmul(x, head);
    builder_finish(b, logits)
}

fn attention_block(b: &mut Builder, s: Sizes, family: &Family, layer: usize, x: ValueId) -> ValueId {
    let norm = b.weight(&format!("blk.{layer}.attn_norm.weight"), DType::F32, 1, s.embedding);
    let normed = b.rms_norm(x, norm, family.eps);
    let [q, k, v] = [("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)].map(|(name, heads)| {
        let name = format!("blk.{layer}.attn_{name}");
        let mut x = linear(b, &name, normed, s.embedding, heads * s.head_dim, family.biases);
        if family.head_norms && !name.ends_with('v') {
            let norm = b.weight(&format!("{name}_norm.weight"), DType::F32, 1, s.head_dim);
            x = b.rms_norm(x, norm, family.eps);
        }
        if name.ends_with('v') { x } else { rotated(b, s, family, x) }
    });
    let cache = LayerCache { kv_heads: s.kv_heads, head_dim: s.head_dim, keys_only: false };
    let attended = b.attention([q, k, v], cache, s.heads, (s.head_dim as f32).sqrt().recip());
    let name = format!("blk.{layer}.attn_output");
    let projected = linear(b, &name, attended, s.heads * s.head_dim, s.embedding, family.biases);
    b.add(x, projected)
}

fn rotated(b: &mut Builder, s: Sizes, family: &Family, x: ValueId) -> ValueId {
    let pairs = s.head_dim / 2;
    let frequencies: Vec<f32> = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32)).collect();
    let mut frequencies = b.constant(frequencies);
    let mut style = RopeStyle::Halves;
    if family.rope_freqs {
        let factors = b.weight("rope_freqs.weight", DType::F32, 1, pairs);
        frequencies = b.div(frequencies, factors);
        style = RopeStyle::Adjacent;
    }
    b.rope(x, frequencies, RopeSpec { style, head_dim: s.head_dim, axes: RopeAxes::First })
}

fn feed_forward_block(b: &mut Builder, s: Sizes, family: &Family, layer: usize, x: ValueId) -> ValueId {
    let norm = b.weight(&format!("blk.{layer}.ffn_norm.weight"), DType::F32, 1, s.embedding);
    let normed = b.rms_norm(x, norm, family.eps);
    let gate = linear(b, &format!("blk.{layer}.ffn_gate"), normed, s.embedding, s.feed_forward, false);
    let up = linear(b, &format!("blk.{layer}.ffn_up"), normed, s.embedding, s.feed_forward, false);
    let gate = b.silu(gate);
    let gated = b.mul(gate, up);
    let down = linear(b, &format!("blk.{layer}.ffn_down"), gated, s.feed_forward, s.embedding, false);
    b.add(x, down)
}

fn linear(b: &mut Builder, name: &str, x: ValueId, from: usize, to: usize, bias: bool) -> ValueId {
    let w = b.weight(&format!("{name}.weight"), DType::F32, to, from);
    let y = b.matmul(x, w);
    if !bias {
        return y;
    }
    let bias = b.weight(&format!("{name}.bias"), DType::F32, 1, to);
    b.add(y, bias)
}

fn builder_finish(b: &mut Builder, logits: ValueId) -> Graph {
    std::mem::take(b).finish(logits).expect("a valid graph")
}

/// Returns weights between -1 and 1 for every tensor of the graph, a function of its name and the
/// seed. The elements of `rope_freqs.weight` are powers of two, so that dividing by them in f32 is
/// exact.
pub fn weights_for(graph: &Graph, seed: u64) -> Weights {
    let mut weights = HashMap::new();
    for value in graph.values() {
        let (Source::Weight { slice, .. }, Rows::Fixed(rows)) = (&value.source, value.shape.rows) else { continue };
        let mut random =
            Random::new(slice.name.bytes().fold(seed, |seed, byte| seed.wrapping_mul(257) ^ u64::from(byte)));
        let mut number = || match &*slice.name {
            "rope_freqs.weight" => [1.0, 2.0, 4.0, 8.0][random.below(4)],
            _ => random.between(-1.0, 1.0),
        };
        weights.insert(slice.name.to_string(), (0..rows * value.shape.width).map(|_| number()).collect());
    }
    weights
}

/// Returns four steps of two sequences: prefills of two lengths, runs of one and two tokens, a
/// prefill chunk without outputs, and a decode step.
pub fn steps(vocabulary: usize) -> Vec<Step> {
    let token = |i: usize| ((i * 7 + 3) % vocabulary) as u32;
    let step = |runs: &[(usize, usize, usize)], outputs: &[usize]| {
        let runs: Vec<_> = runs.iter().map(|&(sequence, start, len)| Run::new(sequence, start, len)).collect();
        let tokens = (0..runs.iter().map(|run| run.len).sum()).map(|i| token(i + 5 * outputs.len())).collect();
        Step { tokens, runs, outputs: outputs.to_vec(), ..Step::default() }
    };
    vec![
        step(&[(0, 0, 4), (1, 0, 3)], &[1, 3, 6]),
        step(&[(1, 3, 1), (0, 4, 2)], &[0, 1, 2]),
        step(&[(0, 6, 3)], &[]),
        step(&[(0, 9, 1)], &[0]),
    ]
}

/// A choice in a random graph: the node to add, and the earlier values that are its operands.
pub type Choice = (u8, u8, u8, u8);

/// The vocabulary of [`random_graph`].
pub const VOCABULARY: usize = 11;

/// The width of all values of [`random_graph`] that can be operands.
const WIDTH: usize = 8;

/// Returns the graph of these choices, with every op, shared operands, unread results, and whole
/// patterns that fuse.
pub fn random_graph(choices: &[Choice]) -> Graph {
    let b = &mut Builder::new();
    let tokens = b.tokens();
    let table = b.weight("table", DType::F32, VOCABULARY, WIDTH);
    let mut pool = vec![b.embed(table, tokens)];
    let mut selected = Vec::new();
    for (index, &(kind, a, c, d)) in choices.iter().enumerate() {
        // Recent values most of the time, so that chains grow.
        let pick = |n: u8| pool[pool.len() - 1 - usize::from(n % 4).min(pool.len() - 1)];
        let (x, y) = (pick(a), pick(c));
        if kind % 16 == 15 {
            selected.push(b.push(Op::SelectOutputs, &[x]));
            continue;
        }
        let value = random_node(b, kind % 16, [x, y, pick(d)], usize::from(d % 3), index);
        pool.push(value);
    }
    let last = pool[pool.len() - 1];
    let head = matrix(b, "head", VOCABULARY);
    let mut logits = b.matmul(last, head);
    if !selected.is_empty() {
        logits = b.push(Op::SelectOutputs, &[logits]);
    }
    for (index, x) in selected.into_iter().enumerate() {
        let head = matrix(b, &format!("head{}", index % 2), VOCABULARY);
        let more = b.matmul(x, head);
        logits = b.add(logits, more);
    }
    builder_finish(b, logits)
}

/// Adds the nodes of a `kind` over `x`, `y` and `z`, with the weights numbered `w`. The result has
/// the width `WIDTH`.
fn random_node(b: &mut Builder, kind: u8, [x, y, z]: [ValueId; 3], w: usize, index: usize) -> ValueId {
    let norm = |b: &mut Builder, x, width| {
        let weight = b.weight(&format!("norm{w}.{width}"), DType::F32, 1, width);
        b.rms_norm(x, weight, [1e-6, 1e-5][w % 2])
    };
    let product = |b: &mut Builder, x, w: usize| {
        let w = matrix(b, &format!("matrix{w}"), WIDTH);
        b.matmul(x, w)
    };
    let row = |b: &mut Builder, w: usize| b.constant([0.5, 1.0, 2.0, 1.0, 0.25, 1.0, 4.0, 1.0 + w as f32]);
    match kind {
        0 => b.add(x, y),
        1 => {
            let bias = b.weight(&format!("bias{w}"), DType::F32, 1, WIDTH);
            b.add(x, bias)
        }
        2 => {
            let y = b.mul(x, y);
            norm(b, y, WIDTH)
        }
        3 => b.silu(x),
        4 => norm(b, x, WIDTH),
        5 => norm(b, x, WIDTH / 2),
        6 => product(b, x, w),
        7 => {
            let row = row(b, w);
            b.div(x, row)
        }
        8 => {
            let frequencies = b.constant([1.0, 0.125]);
            let style = [RopeStyle::Adjacent, RopeStyle::Halves][w % 2];
            b.rope(x, frequencies, RopeSpec { style, head_dim: WIDTH / 2, axes: RopeAxes::First })
        }
        9 => {
            let (kv_heads, head_dim) = if w == 0 { (2, WIDTH / 2) } else { (1, WIDTH) };
            b.attention([x, y, z], LayerCache { kv_heads, head_dim, keys_only: false }, kv_heads, 0.5)
        }
        10 => {
            let (gate, up) = (product(b, x, w), product(b, x, w + 1));
            let gate = b.silu(gate);
            let gated = if index.is_multiple_of(2) { b.mul(gate, up) } else { b.mul(up, gate) };
            norm(b, gated, WIDTH)
        }
        11 => {
            let y = product(b, y, w);
            if index.is_multiple_of(2) { b.add(x, y) } else { b.add(y, x) }
        }
        12 => {
            let sum = b.add(x, y);
            norm(b, sum, WIDTH)
        }
        13 => {
            let (row, other) = (row(b, w), row(b, w + 1));
            let folded = b.mul(row, other);
            b.mul(x, folded)
        }
        _ => {
            let q = product(b, x, w);
            let [k, v] = ["key", "value"].map(|name| {
                let w = matrix(b, name, WIDTH / 2);
                b.matmul(x, w)
            });
            b.attention([q, k, v], LayerCache { kv_heads: 1, head_dim: WIDTH / 2, keys_only: false }, 2, 0.3)
        }
    }
}

fn matrix(b: &mut Builder, name: &str, rows: usize) -> ValueId {
    b.weight(name, DType::F32, rows, WIDTH)
}

/// A random number generator (SplitMix64) whose numbers are the same on every platform.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}
