//! Qwen3.5, dense ([Qwen Team 2026](https://qwen.ai/blog?id=qwen3.5)): three of four layers are gated DeltaNets
//! ([Yang et al. 2024](https://arxiv.org/abs/2412.06464)), whose memory of a text does not grow with it; the fourth is
//! attention with a gate on its result ([Qiu et al. 2025](https://arxiv.org/abs/2505.06708)), heads that are normed and
//! rotated in part. Text only: for text the sections of the rotation are one.

use super::{Config, LayerConfig, Model, keys::Keys, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, DeltaSpec, LayerCache, RECURRENT_UNIT, RopeStyle, ValueId},
};

/// The largest sizes that are believed.
const MAX_HEADS: usize = 1 << 12;
const MAX_HEAD_DIM: usize = 1 << 8;
const MAX_KERNEL: usize = 1 << 6;

/// What this family has besides.
struct Sizes {
    /// Every so many layers, the last of each is attention.
    interval: usize,
    /// Tokens that a short convolution sees.
    kernel: usize,
    delta: DeltaSpec,
}

impl Sizes {
    fn read(c: &Config, keys: &Keys) -> Result<Self> {
        let interval = keys.optional_size("full_attention_interval", 1 << 12)?.unwrap_or(4);
        if keys.has("attention.recurrent_layers") {
            let what = "is there, which is not built yet: `full_attention_interval` is";
            return Err(keys.error("attention.recurrent_layers", what));
        }
        let kernel = keys.size("ssm.conv_kernel", MAX_KERNEL)?;
        if kernel == 1 {
            return Err(keys.error("ssm.conv_kernel", "is 1, but a convolution must see some token before its own"));
        }
        Ok(Self { interval, kernel, delta: delta(c, keys)? })
    }
}

fn delta(c: &Config, keys: &Keys) -> Result<DeltaSpec> {
    let [key_heads, value_heads] =
        [keys.size("ssm.group_count", MAX_HEADS)?, keys.size("ssm.time_step_rank", MAX_HEADS)?];
    let head_dim = keys.size("ssm.state_size", MAX_HEAD_DIM)?;
    if !head_dim.is_multiple_of(RECURRENT_UNIT) {
        let what = format!("is {head_dim}, but must be a multiple of {RECURRENT_UNIT}");
        return Err(keys.error("ssm.state_size", what));
    }
    if !value_heads.is_multiple_of(key_heads) {
        let what =
            format!("is {key_heads}, which does not divide the {value_heads} value heads of `ssm.time_step_rank`");
        return Err(keys.error("ssm.group_count", what));
    }
    let inner = keys.size("ssm.inner_size", MAX_HEADS * MAX_HEAD_DIM)?;
    if inner != value_heads * head_dim {
        let what = format!("is {inner}, but {value_heads} heads of {head_dim} are {}", value_heads * head_dim);
        return Err(keys.error("ssm.inner_size", what));
    }
    Ok(DeltaSpec { state: 0, key_heads, value_heads, head_dim, eps: c.rms_eps })
}

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let config = config(keys)?;
    let hidden = config.hidden;
    model(keys, config, wiring, |w, layer, h, name| w.feed_forward(h, name, [hidden, layer.ffn], Activation::Silu))
}

pub(super) fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read(keys)?;
    config.leave_out_nextn(keys)?;
    Ok(config)
}

/// A model whose feed-forward blocks, each of the tensors that begin with a name, are as `feed_forward` wires them.
pub(super) fn model(
    keys: &Keys,
    c: Config,
    mut w: Wiring,
    feed_forward: impl Fn(&mut Wiring, &LayerConfig, ValueId, &str) -> Result<ValueId>,
) -> Result<Model> {
    let sizes = Sizes::read(&c, keys)?;
    let mut x = w.embedding(&c)?;
    for (n, layer) in c.layers.iter().enumerate() {
        let h = w.rms_norm(x, &format!("blk.{n}.attn_norm"), c.hidden, c.rms_eps)?;
        let attends = (n + 1).is_multiple_of(sizes.interval);
        let h = if attends { attention(&c, layer, &mut w, h, n)? } else { delta_net(&c, &sizes, &mut w, h, n)? };
        x = w.builder.add(x, h);
        let h = w.rms_norm(x, &format!("blk.{n}.post_attention_norm"), c.hidden, c.rms_eps)?;
        let h = feed_forward(&mut w, layer, h, &format!("blk.{n}.ffn"))?;
        x = w.builder.add(x, h);
    }
    w.finish(c, x)
}

/// Each head of `attn_q` is a query, then the gate of what the head attends to.
fn attention(c: &Config, l: &LayerConfig, w: &mut Wiring, h: ValueId, n: usize) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{n}.attn_{part}");
    let (q_width, kv_width) = (l.heads * l.head_dim, l.kv_heads * l.head_dim);
    let cache = LayerCache { kv_heads: l.kv_heads, head_dim: l.head_dim };

    let q = w.linear(h, &name("q"), 2 * q_width, c.hidden)?;
    let k = w.linear(h, &name("k"), kv_width, c.hidden)?;
    let v = w.linear(h, &name("v"), kv_width, c.hidden)?;
    let [q, gate] = [0, l.head_dim].map(|first| w.builder.slice(q, first, l.head_dim, 2 * l.head_dim));
    let q = w.rms_norm(q, &name("q_norm"), l.head_dim, c.rms_eps)?;
    let k = w.rms_norm(k, &name("k_norm"), l.head_dim, c.rms_eps)?;
    let ([q, k], scores) = w.rotated(l, RopeStyle::Halves, [q, k])?;
    let a = w.builder.attention([q, k, v], cache, l.heads, scores);
    let gate = w.builder.activate(Activation::Sigmoid, gate);
    let a = w.builder.mul(a, gate);
    w.linear(a, &name("output"), c.hidden, q_width)
}

fn delta_net(c: &Config, s: &Sizes, w: &mut Wiring, h: ValueId, n: usize) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{n}.{part}");
    let DeltaSpec { key_heads, value_heads, head_dim, .. } = s.delta;
    let inner = value_heads * head_dim;
    let channels = 2 * key_heads * head_dim + inner;

    let qkv = w.linear(h, &name("attn_qkv"), channels, c.hidden)?;
    let z = w.linear(h, &name("attn_gate"), inner, c.hidden)?;
    let [alpha, beta] = [name("ssm_alpha"), name("ssm_beta")];
    let [alpha, beta] = [w.linear(h, &alpha, value_heads, c.hidden)?, w.linear(h, &beta, value_heads, c.hidden)?];
    let taps = w.weight(&name("ssm_conv1d.weight"), channels, s.kernel)?;
    let qkv = w.builder.short_conv(qkv, taps);
    let [a, dt] = [w.weight(&name("ssm_a"), 1, value_heads)?, w.weight(&name("ssm_dt.bias"), 1, value_heads)?];
    let y = w.builder.gated_delta([qkv, alpha, beta, a, dt], s.delta);
    let y = w.rms_norm(y, &name("ssm_norm"), head_dim, c.rms_eps)?;
    let gate = w.builder.silu(z);
    let y = w.builder.mul(y, gate);
    w.linear(y, &name("ssm_out"), c.hidden, inner)
}
