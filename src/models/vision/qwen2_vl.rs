//! The vision encoders of Qwen2-VL ([Wang et al. 2024](https://arxiv.org/abs/2409.12191)) and
//! Qwen2.5-VL ([Bai et al. 2025](https://arxiv.org/abs/2502.13923)), whose patches have rotary
//! positions alone. Most layers of Qwen2.5-VL attend within windows.

use super::{
    Projector,
    layers::{Encoder, Norm},
    qwen,
};
use crate::{
    Result,
    gguf::Value,
    graph::{Graph, RopeStyle},
    models::{
        checkpoint::{
            EncoderCheckpoint, EncoderSettings, KeyValues, Meaning, Need, TensorMapping, one_of, setting, side, size,
            tensor,
        },
        model_builder::FeedForward,
    },
};

pub(super) const QWEN2: EncoderCheckpoint = EncoderCheckpoint {
    model_types: &["qwen2_vl"],
    projector: "qwen2vl_merger",
    activation: ("hidden_act", &["quick_gelu"]),
    encoder: &[
        size("depth", "block_count", Need::Or(32)),
        size("embed_dim", "embedding_length", Need::Or(1280)),
        size("num_heads", "attention.head_count", Need::Or(16)),
        side("patch_size", "patch_size", 14),
        size("spatial_merge_size", "spatial_merge_size", Need::Or(2)),
        one_of("temporal_patch_size", &["2"]),
        one_of("in_channels", &["3"]),
        one_of("in_chans", &["3"]),
        setting("mlp_ratio", Meaning::Derived("feed_forward_length")),
    ],
    tensors: &[TENSORS_OF_BOTH, &[tensor("mlp.fc1", "ffn_up"), tensor("mlp.fc2", "ffn_down")]],
    derived: |settings| {
        let ratio = settings.encoder.size("mlp_ratio")?.unwrap_or(4);
        let ffn = settings.value("embedding_length").saturating_mul(u64::from(ratio));
        let mut keys = qwen::keys(settings)?;
        keys.push(("feed_forward_length", Value::U64(ffn)));
        keys.push(qwen::block_side(settings));
        Ok(keys)
    },
    ..qwen::CHECKPOINT
};

pub(super) const QWEN25: EncoderCheckpoint = EncoderCheckpoint {
    model_types: &["qwen2_5_vl"],
    projector: "qwen2.5vl_merger",
    activation: ("hidden_act", &["silu"]),
    encoder: &[
        size("depth", "block_count", Need::Or(32)),
        size("hidden_size", "embedding_length", Need::Or(3584)),
        size("intermediate_size", "feed_forward_length", Need::Or(3420)),
        size("num_heads", "attention.head_count", Need::Or(16)),
        side("patch_size", "patch_size", 14),
        size("spatial_merge_size", "spatial_merge_size", Need::Or(2)),
        size("window_size", "window_size", Need::Or(112)),
        one_of("temporal_patch_size", &["2"]),
        one_of("in_channels", &["3"]),
        one_of("in_chans", &["3"]),
        setting(FULL_LAYERS, Meaning::Derived("n_wa_pattern")),
    ],
    tensors: &[
        TENSORS_OF_BOTH,
        &[tensor("mlp.gate_proj", "ffn_gate"), tensor("mlp.up_proj", "ffn_up"), tensor("mlp.down_proj", "ffn_down")],
    ],
    derived: |settings| {
        let mut keys = qwen::keys(settings)?;
        keys.extend(interval_of_full_layers(settings)?);
        keys.push(qwen::block_side(settings));
        Ok(keys)
    },
    ..qwen::CHECKPOINT
};

const FULL_LAYERS: &str = "fullatt_block_indexes";

const TENSORS_OF_BOTH: &[TensorMapping] = &[
    qwen::PATCHES,
    tensor("norm1", "ln1"),
    tensor("norm2", "ln2"),
    tensor("attn.qkv", "attn_qkv"),
    tensor("attn.proj", "attn_out"),
    tensor("merger.ln_q", "v.post_ln"),
    tensor("merger.mlp.0", "mm.0"),
    tensor("merger.mlp.2", "mm.2"),
];

/// Returns the key for the interval of layers with full attention, which GGUF has instead of a list
/// of them.
fn interval_of_full_layers(settings: &EncoderSettings) -> Result<KeyValues> {
    let layers = settings.value("block_count");
    let listed = match settings.encoder.get(FULL_LAYERS) {
        None => Some(vec![7, 15, 23, 31]),
        Some(value) => value.as_array().and_then(|all| all.iter().map(|layer| layer.as_u64()).collect()),
    };
    let interval = listed.as_ref().and_then(|listed: &Vec<u64>| listed.first()?.checked_add(1));
    let is_regular = interval.is_some_and(|interval| {
        let expected = (1..=layers / interval).map(|number| number * interval - 1);
        listed.is_some_and(|listed| listed.into_iter().eq(expected))
    });
    match interval.filter(|_| is_regular) {
        Some(interval) => Ok(vec![("n_wa_pattern", Value::U64(interval))]),
        None => {
            let what = format!("must list the last of each few of the {layers} layers, at equal intervals");
            Err(settings.encoder.error(FULL_LAYERS, what))
        }
    }
}

pub(super) fn build(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let gated = config.projector == Projector::Qwen25Vl;
    let norm = if gated { Norm::Rms } else { Norm::Layer };
    let scale = (config.head_dim() as f32).sqrt().recip();
    // The kernel of two frames, of which an image is two equal ones.
    let mut x = encoder.patches(&["v.patch_embd.weight", "v.patch_embd.weight.1"])?;
    for index in 0..config.layers {
        let normed = encoder.norm(norm, x, &format!("v.blk.{index}.ln1"), hidden, eps)?;
        let [q, k, v] = encoder.queries_keys_values(normed, index)?;
        let [q, k] = encoder.rotate([q, k], RopeStyle::Halves);
        let attended = encoder.attend([q, k, v], index, scale);
        let output = encoder.attention_output(attended, index)?;
        x = encoder.graph.ops.add(x, output);
        let normed = encoder.norm(norm, x, &format!("v.blk.{index}.ln2"), hidden, eps)?;
        let output = if gated {
            let network = FeedForward { hidden, ffn: config.ffn, activation: config.activation, gated: true };
            encoder.graph.feed_forward(normed, &format!("v.blk.{index}.ffn"), network)?
        } else {
            encoder.feed_forward(normed, index)?
        };
        x = encoder.graph.ops.add(x, output);
    }
    let normed = encoder.norm(norm, x, "v.post_ln", hidden, eps)?;
    let joined = encoder.join_blocks(normed);
    let width = hidden * config.block.pow(2);
    let rows = encoder.perceptron(joined, ["mm.0", "mm.2"], [width, width], config.projector_activation())?;
    encoder.finish(rows)
}
