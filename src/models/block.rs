//! The layer that most families share: a norm, grouped-query attention and a residual, then a norm, a gated feed-forward
//! and a residual. Biases are added wherever the file has them, and experts may take the feed-forward's place.

use super::{Config, LayerConfig, Model, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, LayerCache, RopeStyle, ValueId},
};

/// What a family makes of it.
pub(super) struct Block {
    /// Which elements of a head are rotated together, as a converter to GGUF has laid them out.
    pub style: RopeStyle,
    /// Whether queries and keys are normed head by head before they are rotated.
    pub head_norms: bool,
    /// Whether attention and feed-forward are normed before they are added to the residual stream.
    pub post_norms: bool,
    /// What the feed-forward's gate goes through.
    pub activation: Activation,
}

impl Block {
    /// A model of such layers.
    pub fn model(&self, c: Config, mut w: Wiring) -> Result<Model> {
        let mut x = w.embedding(&c)?;
        for (n, layer) in c.layers.iter().enumerate() {
            x = self.attention(&c, layer, &mut w, x, n)?;
            x = self.feed_forward(&c, layer, &mut w, x, n)?;
        }
        w.finish(c, x)
    }

    fn attention(&self, c: &Config, l: &LayerConfig, w: &mut Wiring, x: ValueId, n: usize) -> Result<ValueId> {
        let name = |part: &str| format!("blk.{n}.{part}");
        let (q_width, kv_width) = (l.heads * l.head_dim, l.kv_heads * l.head_dim);
        let cache = LayerCache { kv_heads: l.kv_heads, head_dim: l.head_dim };

        let h = w.rms_norm(x, &name("attn_norm"), c.hidden, c.rms_eps)?;
        let [q, k, v] = [name("attn_q"), name("attn_k"), name("attn_v")];
        let parts = [(q.as_str(), q_width), (&k, kv_width), (&v, kv_width)];
        let [mut q, mut k, v] = w.linears(h, &name("attn_qkv"), parts, c.hidden)?;
        if self.head_norms {
            q = w.rms_norm(q, &name("attn_q_norm"), l.head_dim, c.rms_eps)?;
            k = w.rms_norm(k, &name("attn_k_norm"), l.head_dim, c.rms_eps)?;
        }
        let style = if c.reference_layout { RopeStyle::Halves } else { self.style };
        let ([q, k], scores) = w.rotated(l, style, [q, k])?;
        let a = w.builder.attention([q, k, v], cache, l.heads, scores);
        let a = w.linear(a, &name("attn_output"), c.hidden, q_width)?;
        self.join(c, w, [x, a], &name("post_attention_norm"))
    }

    pub fn feed_forward(&self, c: &Config, l: &LayerConfig, w: &mut Wiring, x: ValueId, n: usize) -> Result<ValueId> {
        let name = |part: &str| format!("blk.{n}.{part}");
        let h = w.rms_norm(x, &name("ffn_norm"), c.hidden, c.rms_eps)?;
        let h = match &l.experts {
            Some(experts) => w.mixture(h, &name("ffn"), c.hidden, experts, self.activation)?,
            None => w.feed_forward(h, &name("ffn"), [c.hidden, l.ffn], self.activation)?,
        };
        self.join(c, w, [x, h], &name("post_ffw_norm"))
    }

    /// The residual stream `x` with what a part of the layer came to.
    pub fn join(&self, c: &Config, w: &mut Wiring, [x, part]: [ValueId; 2], norm: &str) -> Result<ValueId> {
        let part = if self.post_norms { w.rms_norm(part, norm, c.hidden, c.rms_eps)? } else { part };
        let part = w.scale(part, c.residual_scale);
        Ok(w.builder.add(x, part))
    }
}
