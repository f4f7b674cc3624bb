//! Builds a model with the sizes of Qwen3-0.6B and random weights, which needs no model file.

use inkstone::{
    CacheType, DType, Decoder, Result,
    internals::{
        backend::{Backend, cpu::Cpu},
        generate::Limits,
        graph::{Builder, Graph, LayerCache, RopeAxes, RopeSpec, RopeStyle, Rows, Source, ValueId},
        kv_cache::{CacheLayout, KvCache},
        optimize::{Target, optimize},
        weights::Weights,
    },
};

const LAYERS: usize = 28;
const HIDDEN: usize = 1024;
const HEADS: usize = 16;
const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 128;
const FFN: usize = 3072;
const VOCABULARY: usize = 151_936;
const EPS: f32 = 1e-6;

/// Compiles the model with all matrices in `dtype`, for sequences of up to `context` tokens.
pub fn decoder(cpu: &Cpu, dtype: DType, context: usize) -> Result<Decoder> {
    let graph = graph(dtype)?;
    let weights = weights(&graph)?;
    let graph = optimize(&graph, &Target { supports: &|op| cpu.supports(op), vector: &|_, _| None })?.graph;
    let layout = CacheLayout::new(&graph, CacheType::default())?;
    let limits = Limits { vocab_size: VOCABULARY, max_tokens: 256, max_outputs: 16 };
    let executable = cpu.compile(&graph, &weights, &layout, limits.max_tokens, limits.max_outputs)?;
    Ok(Decoder::new(executable, KvCache::new(&layout, context), limits))
}

fn graph(dtype: DType) -> Result<Graph> {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let table = b.weight("token_embd.weight", dtype, VOCABULARY, HIDDEN);
    let pairs = HEAD_DIM / 2;
    let frequencies = b.constant((0..pairs).map(|i| 1e6_f32.powf(-(i as f32) / pairs as f32)).collect::<Vec<_>>());
    let mut x = b.embed(table, tokens);
    for n in 0..LAYERS {
        x = layer(&mut Layer { builder: &mut b, dtype, n }, frequencies, x);
    }
    let x = Layer { builder: &mut b, dtype, n: LAYERS }.rms_norm(x, "output_norm", HIDDEN);
    let logits = b.matmul(x, table);
    b.finish(logits)
}

fn layer(l: &mut Layer, frequencies: ValueId, x: ValueId) -> ValueId {
    let rope = RopeSpec { style: RopeStyle::Halves, head_dim: HEAD_DIM, axes: RopeAxes::First };
    let cache = LayerCache { kv_heads: KV_HEADS, head_dim: HEAD_DIM, keys_only: false };
    let (q_width, kv_width) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);

    let h = l.rms_norm(x, "attn_norm", HIDDEN);
    let [q, k, v] = [("attn_q", q_width), ("attn_k", kv_width), ("attn_v", kv_width)]
        .map(|(name, rows)| l.matmul(h, name, rows, HIDDEN));
    let [q, k] = [(q, "attn_q_norm"), (k, "attn_k_norm")].map(|(x, name)| {
        let x = l.rms_norm(x, name, HEAD_DIM);
        l.builder.rope(x, frequencies, rope)
    });
    let a = l.builder.attention([q, k, v], cache, HEADS, (HEAD_DIM as f32).sqrt().recip());
    let a = l.matmul(a, "attn_output", HIDDEN, q_width);
    let x = l.builder.add(x, a);

    let h = l.rms_norm(x, "ffn_norm", HIDDEN);
    let [gate, up] = ["ffn_gate", "ffn_up"].map(|name| l.matmul(h, name, FFN, HIDDEN));
    let gate = l.builder.silu(gate);
    let h = l.builder.mul(gate, up);
    let h = l.matmul(h, "ffn_down", HIDDEN, FFN);
    l.builder.add(x, h)
}

/// Adds the ops of a layer to a graph, with weights named and stored as for that layer.
struct Layer<'a> {
    builder: &'a mut Builder,
    dtype: DType,
    n: usize,
}

impl Layer<'_> {
    fn matmul(&mut self, x: ValueId, name: &str, rows: usize, columns: usize) -> ValueId {
        let w = self.builder.weight(&format!("blk.{}.{name}.weight", self.n), self.dtype, rows, columns);
        self.builder.matmul(x, w)
    }

    fn rms_norm(&mut self, x: ValueId, name: &str, n: usize) -> ValueId {
        let w = self.builder.weight(&format!("blk.{}.{name}.weight", self.n), DType::F32, 1, n);
        self.builder.rms_norm(x, w, EPS)
    }
}

/// Returns pseudo-random codes with small scales for each matrix of the graph, and small norm
/// weights.
fn weights(graph: &Graph) -> Result<Weights> {
    let mut state = 1_u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Floats of any format are finite if their bytes are less than 0x38.
        (state >> 24) as u8 % 0x38
    };
    let named = graph.values().iter().filter_map(|value| match (&value.source, value.shape.rows) {
        (Source::Weight { slice, dtype }, Rows::Fixed(rows)) => Some((&slice.name, *dtype, rows, value.shape.width)),
        _ => None,
    });
    Weights::from_memory(named.map(|(name, dtype, rows, columns)| {
        let bytes = match rows {
            // Small, so that values do not overflow the cache format.
            1 => 0.01_f32.to_le_bytes().repeat(columns),
            _ => (0..rows * dtype.row_bytes(columns).unwrap_or(0)).map(|_| byte()).collect(),
        };
        (name.to_string(), dtype, vec![rows, columns], bytes)
    }))
}
