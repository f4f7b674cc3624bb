//! Qwen3, dense ([Qwen Team 2025](https://arxiv.org/abs/2505.09388)): pre-norm blocks, grouped-query attention whose
//! queries and keys are normed head by head before they are rotated, and a SwiGLU feed-forward.

use super::{Config, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, Graph, LayerCache, RopeSpec, RopeStyle, ValueId},
};

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = wiring.builder.constant(config.rope.frequencies());
    let mut x = wiring.embedding(config)?;
    for n in 0..config.layers {
        x = layer(config, &mut wiring, frequencies, x, n)?;
    }
    wiring.finish(config, x)
}

fn layer(c: &Config, w: &mut Wiring, frequencies: ValueId, x: ValueId, n: usize) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{n}.{part}");
    let (q_width, kv_width) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let rope = RopeSpec { style: RopeStyle::Halves, head_dim: c.head_dim };
    let cache = LayerCache { kv_heads: c.kv_heads, head_dim: c.head_dim };

    let h = w.rms_norm(x, &name("attn_norm"), c.hidden, c.rms_eps)?;
    let q = w.linear(h, &name("attn_q"), q_width, c.hidden)?;
    let k = w.linear(h, &name("attn_k"), kv_width, c.hidden)?;
    let v = w.linear(h, &name("attn_v"), kv_width, c.hidden)?;
    let q = w.rms_norm(q, &name("attn_q_norm"), c.head_dim, c.rms_eps)?;
    let k = w.rms_norm(k, &name("attn_k_norm"), c.head_dim, c.rms_eps)?;
    let q = w.builder.rope(q, frequencies, rope);
    let k = w.builder.rope(k, frequencies, rope);
    let a = w.builder.attention([q, k, v], cache, c.heads, c.rope.attention_scale(c.head_dim));
    let a = w.linear(a, &name("attn_output"), c.hidden, q_width)?;
    let x = w.builder.add(x, a);

    let h = w.rms_norm(x, &name("ffn_norm"), c.hidden, c.rms_eps)?;
    let h = w.feed_forward(h, &name("ffn"), [c.hidden, c.ffn], Activation::Silu)?;
    Ok(w.builder.add(x, h))
}
