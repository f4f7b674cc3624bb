//! The vision encoder of InternVL ([Chen et al. 2024](https://arxiv.org/abs/2404.16821)): patches
//! and a class token with learned positions, and layers whose results are scaled element by
//! element. The encoder with 6 billion parameters has RMS norms, and norms of queries and keys.

use super::layers::{CLASS_TAPS, Encoder, Norm, PATCH_TAPS};
use crate::{
    Result,
    gguf::Value,
    graph::{Graph, ValueId},
    models::checkpoint::{
        EncoderCheckpoint, EncoderSettings, KeyValues, Meaning, Need, Transform, float, one_of, setting, side, size,
        tensor, transformed,
    },
};

/// The number that the projector's norm adds to the variance.
const PROJECTOR_EPS: f32 = 1e-5;

pub(super) const CHECKPOINT: EncoderCheckpoint = EncoderCheckpoint {
    model_types: &["internvl"],
    projector: "internvl",
    activation: ("hidden_act", &["gelu"]),
    encoder: &[
        size("num_hidden_layers", "block_count", Need::Or(24)),
        size("hidden_size", "embedding_length", Need::Or(1024)),
        size("intermediate_size", "feed_forward_length", Need::Or(4096)),
        size("num_attention_heads", "attention.head_count", Need::Or(16)),
        float("layer_norm_eps", "attention.layer_norm_epsilon", Need::Or(1e-6)),
        side("image_size", "image_size", 448),
        side("patch_size", "patch_size", 14),
        one_of("num_channels", &["3"]),
        one_of("use_mean_pooling", &["true"]),
        one_of("use_absolute_position_embeddings", &["true"]),
    ],
    model: &[
        setting(RATIO, Meaning::Derived("projector.scale_factor")),
        one_of("projector_hidden_act", &["gelu"]),
        one_of("vision_feature_layer", &["-1"]),
        one_of("vision_feature_select_strategy", &["default"]),
    ],
    // The processor divides images into tiles whatever `crop_to_patches` says.
    processor: &[
        one_of("do_resize", &["true"]),
        one_of("do_rescale", &["true"]),
        one_of("resample", &["3"]),
        size("min_patches", "preproc_min_tiles", Need::Or(1)),
        size("max_patches", "preproc_max_tiles", Need::Or(12)),
    ],
    prefix: "vision_tower.",
    layers: "encoder.layer.",
    tensors: &[&[
        transformed("embeddings.cls_token", "v.class_embd", Transform::Squeeze),
        transformed("embeddings.position_embeddings", "v.position_embd.weight", Transform::Squeeze),
        tensor("embeddings.patch_embeddings.projection", "v.patch_embd"),
        tensor("layernorm_before", "ln1"),
        tensor("layernorm_after", "ln2"),
        tensor("lambda_1", "ls1.weight"),
        tensor("lambda_2", "ls2.weight"),
        tensor("attention.q_proj", "attn_q"),
        tensor("attention.k_proj", "attn_k"),
        tensor("attention.v_proj", "attn_v"),
        tensor("attention.q_norm", "attn_q_norm"),
        tensor("attention.k_norm", "attn_k_norm"),
        tensor("attention.projection_layer", "attn_out"),
        tensor("mlp.fc1", "ffn_up"),
        tensor("mlp.fc2", "ffn_down"),
        tensor("multi_modal_projector.layer_norm", "mm.model.mlp.0"),
        tensor("multi_modal_projector.linear_1", "mm.model.mlp.1"),
        tensor("multi_modal_projector.linear_2", "mm.model.mlp.3"),
    ]],
    derived: keys,
    ..EncoderCheckpoint::ENCODER
};

const RATIO: &str = "downsample_ratio";

/// Returns the key for the side of a block in patches, whose reciprocal the checkpoint has.
fn keys(settings: &EncoderSettings) -> Result<KeyValues> {
    settings.check_side_of_pictures()?;
    let ratio = settings.model.float(RATIO)?.unwrap_or(0.5);
    let block = ratio.recip().round();
    if block < 1.0 || (block * ratio - 1.0).abs() > 1e-6 {
        return Err(settings.model.error(RATIO, format!("is {ratio}, but the reciprocal of an integer is expected")));
    }
    // The conversion saturates, and the key's range is checked when it is read.
    Ok(vec![("projector.scale_factor", Value::U64(block as u64))])
}

pub(super) fn build(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let norm = if encoder.graph.has("v.blk.0.ln1.bias") { Norm::Layer } else { Norm::Rms };
    let scale = (config.head_dim() as f32).sqrt().recip();
    let mut x = patches_and_class(&mut encoder)?;
    for index in 0..config.layers {
        let name = |part: &str| format!("v.blk.{index}.{part}");
        let normed = encoder.norm(norm, x, &name("ln1"), hidden, eps)?;
        let [mut q, mut k, v] = encoder.queries_keys_values(normed, index)?;
        if encoder.graph.has(&name("attn_q_norm.weight")) {
            q = encoder.graph.rms_norm(q, &name("attn_q_norm"), hidden, eps)?;
            k = encoder.graph.rms_norm(k, &name("attn_k_norm"), hidden, eps)?;
        }
        let attended = encoder.attend([q, k, v], index, scale);
        let output = encoder.attention_output(attended, index)?;
        x = add_scaled(&mut encoder, x, output, &name("ls1.weight"))?;
        let normed = encoder.norm(norm, x, &name("ln2"), hidden, eps)?;
        let output = encoder.feed_forward(normed, index)?;
        x = add_scaled(&mut encoder, x, output, &name("ls2.weight"))?;
    }
    let joined = encoder.join_blocks(x);
    let width = hidden * config.block.pow(2);
    let normed = encoder.norm(Norm::Layer, joined, "mm.model.mlp.0", width, PROJECTOR_EPS)?;
    let names = ["mm.model.mlp.1", "mm.model.mlp.3"];
    let rows = encoder.perceptron(normed, names, [width, config.text_width], config.projector_activation())?;
    encoder.finish(rows)
}

/// Returns the embedded patches and class token with their positions.
fn patches_and_class(encoder: &mut Encoder) -> Result<ValueId> {
    let hidden = encoder.config.hidden;
    // The class token has no pixels, so its row of the product is 0.
    let mut x = encoder.patches(&["v.patch_embd.weight"])?;
    for (name, taps) in [("v.patch_embd.bias", PATCH_TAPS), ("v.class_embd", CLASS_TAPS)] {
        let vector = encoder.graph.weight(name, 1, hidden)?;
        let rows = encoder.graph.ops.interpolate(vector, taps);
        x = encoder.graph.ops.add(x, rows);
    }
    encoder.add_positions(x)
}

fn add_scaled(encoder: &mut Encoder, x: ValueId, output: ValueId, name: &str) -> Result<ValueId> {
    let scale = encoder.graph.weight(name, 1, encoder.config.hidden)?;
    let scaled = encoder.graph.ops.mul(output, scale);
    Ok(encoder.graph.ops.add(x, scaled))
}
