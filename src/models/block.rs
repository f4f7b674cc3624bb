//! The layer that most families share: a norm, grouped-query attention and a residual, then a norm, a gated feed-forward
//! and a residual. Biases are added wherever the file has them.

use super::{Config, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, LayerCache, RopeSpec, RopeStyle, ValueId},
};

/// What a family makes of it.
pub(super) struct Block {
    /// Which elements of a head are rotated together.
    pub style: RopeStyle,
    /// Whether queries and keys are normed head by head before they are rotated.
    pub head_norms: bool,
    /// What the feed-forward's gate goes through.
    pub activation: Activation,
}

impl Block {
    /// All layers; the queries and keys of layer `n` are rotated by `frequencies(n)`, or not at all.
    pub fn layers(
        &self,
        c: &Config,
        w: &mut Wiring,
        x: ValueId,
        frequencies: impl Fn(usize) -> Option<ValueId>,
    ) -> Result<ValueId> {
        (0..c.layers).try_fold(x, |x, n| self.layer(c, w, x, frequencies(n), n))
    }

    fn layer(&self, c: &Config, w: &mut Wiring, x: ValueId, frequencies: Option<ValueId>, n: usize) -> Result<ValueId> {
        let name = |part: &str| format!("blk.{n}.{part}");
        let (q_width, kv_width) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let rope = RopeSpec { style: self.style, head_dim: c.head_dim };
        let cache = LayerCache { kv_heads: c.kv_heads, head_dim: c.head_dim };

        let h = w.rms_norm(x, &name("attn_norm"), c.hidden, c.rms_eps)?;
        let mut q = w.linear(h, &name("attn_q"), q_width, c.hidden)?;
        let mut k = w.linear(h, &name("attn_k"), kv_width, c.hidden)?;
        let v = w.linear(h, &name("attn_v"), kv_width, c.hidden)?;
        if self.head_norms {
            q = w.rms_norm(q, &name("attn_q_norm"), c.head_dim, c.rms_eps)?;
            k = w.rms_norm(k, &name("attn_k_norm"), c.head_dim, c.rms_eps)?;
        }
        if let Some(frequencies) = frequencies {
            [q, k] = [q, k].map(|x| w.builder.rope(x, frequencies, rope));
        }
        let a = w.builder.attention([q, k, v], cache, c.heads, c.rope.attention_scale(c.head_dim));
        let a = w.linear(a, &name("attn_output"), c.hidden, q_width)?;
        let x = w.builder.add(x, a);

        let h = w.rms_norm(x, &name("ffn_norm"), c.hidden, c.rms_eps)?;
        let h = w.feed_forward(h, &name("ffn"), [c.hidden, c.ffn], self.activation)?;
        Ok(w.builder.add(x, h))
    }
}
