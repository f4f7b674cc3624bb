//! Gemma, the first one ([Gemma Team 2024](https://arxiv.org/abs/2403.08295)): rows of the embedding that grow by the root
//! of their width, pre-norm blocks, wide heads that share few or one for keys and values, and a feed-forward gated by
//! GELU. The converter has added the one that the checkpoint's norm weights lack.

use super::{Config, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, Graph, LayerCache, RopeSpec, RopeStyle, ValueId},
};

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = wiring.builder.constant(config.rope.frequencies());
    let x = wiring.embedding(config)?;
    let mut x = wiring.scale(x, (config.hidden as f32).sqrt(), config.hidden);
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
    let q = w.builder.rope(q, frequencies, rope);
    let k = w.builder.rope(k, frequencies, rope);
    let a = w.builder.attention([q, k, v], cache, c.heads, c.rope.attention_scale(c.head_dim));
    let a = w.linear(a, &name("attn_output"), c.hidden, q_width)?;
    let x = w.builder.add(x, a);

    let h = w.rms_norm(x, &name("ffn_norm"), c.hidden, c.rms_eps)?;
    let h = w.feed_forward(h, &name("ffn"), [c.hidden, c.ffn], Activation::Gelu)?;
    Ok(w.builder.add(x, h))
}
