//! Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971), [Llama Team 2024](https://arxiv.org/abs/2407.21783))
//! and the many models of its wiring: pre-norm blocks, grouped-query attention, a SwiGLU feed-forward. The converter
//! has permuted queries and keys so that adjacent elements are rotated together.

use super::{Config, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, Graph, LayerCache, RopeSpec, RopeStyle, ValueId},
};

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = frequencies(config, &mut wiring)?;
    let mut x = wiring.embedding(config)?;
    for n in 0..config.layers {
        x = layer(config, &mut wiring, Some(frequencies), x, n)?;
    }
    wiring.finish(config, x)
}

/// The frequencies, divided by what Llama 3.1 and later stretch each of them with.
fn frequencies(config: &Config, wiring: &mut Wiring) -> Result<ValueId> {
    let plain = wiring.builder.constant(config.rope.frequencies());
    let divisors = wiring.optional_weight("rope_freqs.weight", 1, config.rope.dim / 2)?;
    Ok(divisors.map_or(plain, |divisors| wiring.builder.div(plain, divisors)))
}

/// Layer `n`, whose queries and keys are rotated by these frequencies, or not at all.
pub(super) fn layer(c: &Config, w: &mut Wiring, frequencies: Option<ValueId>, x: ValueId, n: usize) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{n}.{part}");
    let (q_width, kv_width) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let rope = RopeSpec { style: RopeStyle::Adjacent, head_dim: c.head_dim };
    let cache = LayerCache { kv_heads: c.kv_heads, head_dim: c.head_dim };

    let h = w.rms_norm(x, &name("attn_norm"), c.hidden, c.rms_eps)?;
    let q = w.linear(h, &name("attn_q"), q_width, c.hidden)?;
    let k = w.linear(h, &name("attn_k"), kv_width, c.hidden)?;
    let v = w.linear(h, &name("attn_v"), kv_width, c.hidden)?;
    let [q, k] = [q, k].map(|x| frequencies.map_or(x, |frequencies| w.builder.rope(x, frequencies, rope)));
    let a = w.builder.attention([q, k, v], cache, c.heads, c.rope.attention_scale(c.head_dim));
    let a = w.linear(a, &name("attn_output"), c.hidden, q_width)?;
    let x = w.builder.add(x, a);

    let h = w.rms_norm(x, &name("ffn_norm"), c.hidden, c.rms_eps)?;
    let h = w.feed_forward(h, &name("ffn"), [c.hidden, c.ffn], Activation::Silu)?;
    Ok(w.builder.add(x, h))
}
