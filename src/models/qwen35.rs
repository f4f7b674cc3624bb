//! Qwen3.5, dense ([Qwen Team 2026](https://qwen.ai/blog?id=qwen3.5)): three of four layers are gated DeltaNets
//! ([Yang et al. 2024](https://arxiv.org/abs/2412.06464)), whose memory of a text does not grow with it; the fourth is
//! attention with a gate on its result ([Qiu et al. 2025](https://arxiv.org/abs/2505.06708)), heads that are normed and
//! rotated in part. Text only: for text the sections of the rotation are one.

use super::{
    Checkpoint, Config, LayerConfig, Model,
    checkpoint::{
        BIASES, Key, KeyValues, Made, Means, Need, SILU, SIZES, Settings, TENSORS, Tensor, key, less_one, made, size,
        tensor,
    },
    keys::Keys,
    wiring::Wiring,
};
use crate::{
    Result,
    gguf::{TensorInfo, Value},
    graph::{Activation, DeltaSpec, HeadOrder, LayerCache, RECURRENT_UNIT, RopeStyle, ValueId},
};

/// The largest sizes that are believed.
const MAX_HEADS: usize = 1 << 12;
const MAX_HEAD_DIM: usize = 1 << 8;
const MAX_KERNEL: usize = 1 << 6;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen3_5_text"],
    config: &[LAYERS, SIZES, SILU, BIASES],
    tensors: &[DELTA_NET, NORMS, TENSORS],
    partial_rotary_factor: Some(0.25),
    permuted: true,
    derived: inner_size,
    ..Checkpoint::DECODER
};

/// What the checkpoints have in common with those that have experts.
pub(super) const LAYERS: &[Key] = &[
    size("head_dim", "attention.key_length", Need::Or(256)),
    key("layer_types", Means::Kinds("attention.recurrent_layers", "linear_attention")),
    size("full_attention_interval", "full_attention_interval", Need::Optional),
    size("linear_conv_kernel_dim", "ssm.conv_kernel", Need::Or(4)),
    size("linear_key_head_dim", "ssm.state_size", Need::Or(128)),
    size("linear_num_key_heads", "ssm.group_count", Need::Or(16)),
    size("linear_num_value_heads", "ssm.time_step_rank", Need::Or(32)),
];
pub(super) const DELTA_NET: &[Tensor] = &[
    tensor("linear_attn.in_proj_qkv", "attn_qkv"),
    tensor("linear_attn.in_proj_z", "attn_gate"),
    tensor("linear_attn.in_proj_a", "ssm_alpha"),
    tensor("linear_attn.in_proj_b", "ssm_beta"),
    made("linear_attn.conv1d", "ssm_conv1d", Made::Kernel),
    tensor("linear_attn.dt_bias", "ssm_dt.bias"),
    made("linear_attn.A_log", "ssm_a", Made::MinusExp),
    tensor("linear_attn.norm", "ssm_norm"),
    tensor("linear_attn.out_proj", "ssm_out"),
];
pub(super) const NORMS: &[Tensor] = &[
    less_one("norm", "output_norm"),
    less_one("input_layernorm", "attn_norm"),
    less_one("post_attention_layernorm", "post_attention_norm"),
    less_one("self_attn.q_norm", "attn_q_norm"),
    less_one("self_attn.k_norm", "attn_k_norm"),
];

/// Elements of all value heads.
fn inner_size(settings: &Settings, _: &[TensorInfo]) -> Result<KeyValues> {
    let heads = settings.size("linear_num_value_heads")?.unwrap_or(32);
    let head_dim = settings.size("linear_value_head_dim")?.unwrap_or(128);
    Ok(vec![("ssm.inner_size", Value::U64(u64::from(heads) * u64::from(head_dim)))])
}

/// What this family has besides.
struct Sizes {
    /// Which layers are DeltaNets, with those that are left out.
    recurrent: Vec<bool>,
    /// Tokens that a short convolution sees.
    kernel: usize,
    delta: DeltaSpec,
}

impl Sizes {
    fn read(c: &Config, keys: &Keys) -> Result<Self> {
        let kernel = keys.size("ssm.conv_kernel", MAX_KERNEL)?;
        if kernel == 1 {
            return Err(keys.error("ssm.conv_kernel", "is 1, but a convolution must see some token before its own"));
        }
        Ok(Self { recurrent: recurrent(c, keys)?, kernel, delta: delta(c, keys)? })
    }
}

/// As the file lists them; else all but the last of every few layers.
fn recurrent(c: &Config, keys: &Keys) -> Result<Vec<bool>> {
    const LAYERS: &str = "attention.recurrent_layers";
    if keys.has(LAYERS) {
        return keys.flags(LAYERS, keys.size("block_count", usize::MAX)?);
    }
    let interval = keys.optional_size("full_attention_interval", 1 << 12)?.unwrap_or(4);
    Ok((1..=c.layers.len()).map(|n| !n.is_multiple_of(interval)).collect())
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
    let order = if c.reference_layout { HeadOrder::Grouped } else { HeadOrder::Tiled };
    Ok(DeltaSpec { state: 0, key_heads, value_heads, order, head_dim, eps: c.rms_eps })
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
        let h = match sizes.recurrent[n] {
            true => delta_net(&c, &sizes, &mut w, h, n)?,
            false => attention(&c, layer, &mut w, h, n)?,
        };
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
