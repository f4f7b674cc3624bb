//! Qwen3.5, dense ([Qwen Team 2026](https://qwen.ai/blog?id=qwen3.5)). Three of four layers are
//! gated DeltaNets ([Yang et al. 2024](https://arxiv.org/abs/2412.06464)) with a state of fixed
//! size. Every fourth layer is attention with a gate on its result ([Qiu et al.
//! 2025](https://arxiv.org/abs/2505.06708)) and heads that are normed and partly rotated. An
//! image's rows have a rotary position for the row and the column, which DeltaNets do not see.

use super::{
    Checkpoint, Config, LayerConfig, Model,
    checkpoint::{
        BIASES, KeyValues, Meaning, Need, SILU, SIZES, Setting, Settings, TENSORS, TensorMapping, Transform, setting,
        size, tensor, transformed,
    },
    keys::Keys,
    model_builder::{FeedForward, ModelBuilder},
    mtp,
};
use crate::{
    Result,
    gguf::{TensorInfo, Value},
    graph::{Activation, DeltaSpec, HeadOrder, LayerCache, RECURRENT_UNIT, RopeAxes, RopeStyle, ValueId},
};

/// The largest sizes that are accepted.
const MAX_HEADS: usize = 1 << 12;
const MAX_HEAD_DIM: usize = 1 << 8;
const MAX_KERNEL: usize = 1 << 6;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen3_5_text"],
    settings: &[LAYERS, SIZES, SILU, BIASES],
    tensors: &[HEAD, DELTA_NET, NORMS, TENSORS],
    partial_rotary_factor: Some(0.25),
    permuted: true,
    derived: inner_size,
    ..Checkpoint::DECODER
};

/// The settings of layers, shared with the checkpoints of models with experts.
pub(super) const LAYERS: &[Setting] = &[
    size("head_dim", "attention.key_length", Need::Or(256)),
    setting("layer_types", Meaning::Kinds("attention.recurrent_layers", "linear_attention")),
    size("full_attention_interval", "full_attention_interval", Need::Optional),
    size("linear_conv_kernel_dim", "ssm.conv_kernel", Need::Or(4)),
    size("linear_key_head_dim", "ssm.state_size", Need::Or(128)),
    size("linear_num_key_heads", "ssm.group_count", Need::Or(16)),
    size("linear_num_value_heads", "ssm.time_step_rank", Need::Or(32)),
];
pub(super) const DELTA_NET: &[TensorMapping] = &[
    tensor("linear_attn.in_proj_qkv", "attn_qkv"),
    tensor("linear_attn.in_proj_z", "attn_gate"),
    tensor("linear_attn.in_proj_a", "ssm_alpha"),
    tensor("linear_attn.in_proj_b", "ssm_beta"),
    transformed("linear_attn.conv1d", "ssm_conv1d", Transform::FlattenKernel),
    tensor("linear_attn.dt_bias", "ssm_dt.bias"),
    transformed("linear_attn.A_log", "ssm_a", Transform::NegateExp),
    tensor("linear_attn.norm", "ssm_norm"),
    tensor("linear_attn.out_proj", "ssm_out"),
];
/// The head for multi-token prediction.
pub(super) const HEAD: &[TensorMapping] = &[
    tensor("mtp.fc", "nextn.eh_proj"),
    transformed("mtp.pre_fc_norm_embedding", "nextn.enorm", Transform::AddOne),
    transformed("mtp.pre_fc_norm_hidden", "nextn.hnorm", Transform::AddOne),
    transformed("mtp.norm", "nextn.shared_head_norm", Transform::AddOne),
];
pub(super) const NORMS: &[TensorMapping] = &[
    transformed("norm", "output_norm", Transform::AddOne),
    transformed("input_layernorm", "attn_norm", Transform::AddOne),
    transformed("post_attention_layernorm", "post_attention_norm", Transform::AddOne),
    transformed("self_attn.q_norm", "attn_q_norm", Transform::AddOne),
    transformed("self_attn.k_norm", "attn_k_norm", Transform::AddOne),
];

/// Returns the key for the number of elements in all value heads.
fn inner_size(settings: &Settings, _: &[TensorInfo]) -> Result<KeyValues> {
    let heads = settings.size("linear_num_value_heads")?.unwrap_or(32);
    let head_dim = settings.size("linear_value_head_dim")?.unwrap_or(128);
    Ok(vec![("ssm.inner_size", Value::U64(u64::from(heads) * u64::from(head_dim)))])
}

/// The sizes of the recurrent layers.
struct RecurrentSizes {
    /// Whether each layer is a DeltaNet, for all layers of the file.
    is_recurrent: Vec<bool>,
    /// The number of layers without heads for multi-token prediction.
    layers: usize,
    /// The number of tokens that a short convolution reads.
    kernel: usize,
    delta: DeltaSpec,
    /// Whether the matrices of the gates, and of queries, keys, values and their gate, are joined
    /// by key head.
    joined: bool,
}

impl RecurrentSizes {
    fn read(config: &Config, keys: &Keys, joined: bool) -> Result<Self> {
        let kernel = keys.size("ssm.conv_kernel", MAX_KERNEL)?;
        if kernel == 1 {
            return Err(keys.error("ssm.conv_kernel", "is 1, but must be at least 2"));
        }
        let layers = config.layers.len();
        Ok(Self {
            is_recurrent: is_recurrent(config, keys)?,
            layers,
            kernel,
            delta: delta(config, keys, joined)?,
            joined,
        })
    }
}

/// Reads which layers are recurrent: from a list, or all but the last of each few layers.
fn is_recurrent(config: &Config, keys: &Keys) -> Result<Vec<bool>> {
    const LAYERS: &str = "attention.recurrent_layers";
    if keys.has(LAYERS) {
        return keys.flags(LAYERS, keys.size("block_count", usize::MAX)?);
    }
    let interval = keys.optional_size("full_attention_interval", 1 << 12)?.unwrap_or(4);
    Ok((1..=config.layers.len()).map(|number| !number.is_multiple_of(interval)).collect())
}

fn delta(config: &Config, keys: &Keys, joined: bool) -> Result<DeltaSpec> {
    let key_heads = keys.size("ssm.group_count", MAX_HEADS)?;
    let value_heads = keys.size("ssm.time_step_rank", MAX_HEADS)?;
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
        let what =
            format!("is {inner}, but {value_heads} heads of {head_dim} elements have {}", value_heads * head_dim);
        return Err(keys.error("ssm.inner_size", what));
    }
    let order = if config.reference_layout || joined { HeadOrder::Grouped } else { HeadOrder::Tiled };
    Ok(DeltaSpec { state: 0, key_heads, value_heads, order, head_dim, eps: config.rms_eps })
}

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let config = config(keys)?;
    let hidden = config.hidden;
    model(keys, config, graph, false, |graph, layer, x, name| {
        let network = FeedForward { hidden, ffn: layer.ffn, activation: Activation::Silu, gated: true };
        graph.feed_forward(x, &format!("{name}.ffn"), network)
    })
}

pub(super) fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read(keys)?;
    config.split_mtp(keys)?;
    config.set_axes(keys, RopeAxes::Interleaved)?;
    Ok(config)
}

/// Builds a model. `feed_forward` adds the feed-forward network of a layer, given its input and the
/// prefix of the layer's tensors' names. With `joined` value heads are in the order of their key
/// heads, and so are joined matrices.
pub(super) fn model(
    keys: &Keys,
    config: Config,
    mut graph: ModelBuilder,
    joined: bool,
    feed_forward: impl Fn(&mut ModelBuilder, &LayerConfig, ValueId, &str) -> Result<ValueId>,
) -> Result<Model> {
    let sizes = RecurrentSizes::read(&config, keys, joined)?;
    mtp::refuse_alone(&graph, &config)?;
    let (hidden, rms_eps) = (config.hidden, config.rms_eps);
    let add_layer = |graph: &mut ModelBuilder, _: &Config, layer: &LayerConfig, x: ValueId, index: usize| {
        let normed = graph.rms_norm(x, &format!("blk.{index}.attn_norm"), hidden, rms_eps)?;
        // The head for multi-token prediction, after the last layer, is never recurrent.
        let output = if index < sizes.layers && sizes.is_recurrent[index] {
            delta_net(hidden, &sizes, graph, normed, index)?
        } else {
            attention(hidden, rms_eps, layer, graph, normed, index)?
        };
        let x = graph.ops.add(x, output);
        let normed = graph.rms_norm(x, &format!("blk.{index}.post_attention_norm"), hidden, rms_eps)?;
        let output = feed_forward(graph, layer, normed, &format!("blk.{index}"))?;
        Ok(graph.ops.add(x, output))
    };
    let mut x = graph.embedding(&config)?;
    for (index, layer) in config.layers.iter().enumerate() {
        x = add_layer(&mut graph, &config, layer, x, index)?;
    }
    mtp::finish(graph, config, x, &add_layer)
}

/// Returns gated attention over the normed rows `x`. Each head of `attn_q` is a query, then the
/// gate of the head's result.
fn attention(
    hidden: usize,
    rms_eps: f32,
    layer: &LayerConfig,
    graph: &mut ModelBuilder,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.attn_{part}");
    let &LayerConfig { heads, kv_heads, head_dim, .. } = layer;
    let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);

    let q = graph.linear(x, &name("q"), 2 * q_width, hidden)?;
    let k = graph.linear(x, &name("k"), kv_width, hidden)?;
    let v = graph.linear(x, &name("v"), kv_width, hidden)?;
    let [q, gate] = [0, head_dim].map(|first| graph.ops.slice(q, first, head_dim, 2 * head_dim));
    let q = graph.rms_norm(q, &name("q_norm"), head_dim, rms_eps)?;
    let k = graph.rms_norm(k, &name("k_norm"), head_dim, rms_eps)?;
    let ([q, k], scores) = graph.rotate(layer, RopeStyle::Halves, [q, k])?;
    let attended = graph.ops.attention([q, k, v], LayerCache { kv_heads, head_dim, keys_only: false }, heads, scores);
    let gate = graph.ops.activate(Activation::Sigmoid, gate);
    let attended = graph.ops.mul(attended, gate);
    graph.linear(attended, &name("output"), hidden, q_width)
}

/// Returns a gated DeltaNet over the normed rows `x`.
fn delta_net(
    hidden: usize,
    sizes: &RecurrentSizes,
    graph: &mut ModelBuilder,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let DeltaSpec { key_heads, value_heads, head_dim, .. } = sizes.delta;
    let inner = value_heads * head_dim;
    let channels = 2 * key_heads * head_dim + inner;

    let each = value_heads / key_heads;
    let [qkv, z] = if sizes.joined && graph.has(&name("ssm_in.weight")) {
        // Of each key head the query, the key, its values and their gates.
        let (dim, values) = (head_dim, each * head_dim);
        let all = graph.linear(x, &name("ssm_in"), channels + inner, hidden)?;
        let mut part = |first, len| graph.ops.slice(all, first, len, 2 * dim + 2 * values);
        let [q, k, v] = [part(0, dim), part(dim, dim), part(2 * dim, values)];
        let z = part(2 * dim + values, values);
        [graph.ops.concat(&[q, k, v]), z]
    } else {
        let qkv = graph.linear(x, &name("attn_qkv"), channels, hidden)?;
        [qkv, graph.linear(x, &name("attn_gate"), inner, hidden)?]
    };
    let [beta, alpha] = if sizes.joined {
        let both = graph.linear(x, &name("ssm_ba"), 2 * value_heads, hidden)?;
        [0, each].map(|first| graph.ops.slice(both, first, each, 2 * each))
    } else {
        let beta = graph.linear(x, &name("ssm_beta"), value_heads, hidden)?;
        [beta, graph.linear(x, &name("ssm_alpha"), value_heads, hidden)?]
    };
    let kernel = graph.weight(&name("ssm_conv1d.weight"), channels, sizes.kernel)?;
    let qkv = graph.ops.short_conv(qkv, kernel);
    let a = graph.weight(&name("ssm_a"), 1, value_heads)?;
    let dt = graph.weight(&name("ssm_dt.bias"), 1, value_heads)?;
    let y = graph.ops.gated_delta([qkv, alpha, beta, a, dt], sizes.delta);
    let y = graph.rms_norm(y, &name("ssm_norm"), head_dim, sizes.delta.eps)?;
    let gate = graph.ops.silu(z);
    let y = graph.ops.mul(y, gate);
    graph.linear(y, &name("ssm_out"), hidden, inner)
}
