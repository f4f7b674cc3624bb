//! SigLIP ([Zhai et al. 2023](https://arxiv.org/abs/2303.15343)) with the projectors of Gemma 3
//! ([Gemma Team 2025](https://arxiv.org/abs/2503.19786)) and of Idefics 3 ([Laurençon et al.
//! 2024](https://arxiv.org/abs/2408.12637)), which SmolVLM has too.

use super::layers::{Encoder, Norm};
use crate::{
    Result,
    gguf::Value,
    graph::{Graph, ValueId},
    models::checkpoint::{
        EncoderCheckpoint, EncoderSettings, KeyValues, Meaning, Need, TensorMapping, Transform, float, one_of, setting,
        side, size, tensor, transformed,
    },
};

/// The matrix of Gemma 3's projector.
pub(super) const GEMMA3_PROJECTION: &str = "mm.input_projection.weight";

pub(super) const GEMMA3: EncoderCheckpoint = EncoderCheckpoint {
    model_types: &["gemma3"],
    projector: "gemma3",
    encoder: &[
        size("num_hidden_layers", "block_count", Need::Or(12)),
        size("hidden_size", "embedding_length", Need::Or(768)),
        size("intermediate_size", "feed_forward_length", Need::Or(3072)),
        size("num_attention_heads", "attention.head_count", Need::Or(12)),
        float("layer_norm_eps", "attention.layer_norm_epsilon", Need::Or(1e-6)),
        side("image_size", "image_size", 224),
        side("patch_size", "patch_size", 16),
        one_of("num_channels", &["3"]),
        one_of("vision_use_head", &["false"]),
    ],
    model: &[setting(TOKENS, Meaning::Derived("projector.scale_factor"))],
    processor: &[
        one_of("do_resize", &["true"]),
        one_of("do_rescale", &["true"]),
        one_of("resample", &["2"]),
        one_of("do_pan_and_scan", &["false"]),
    ],
    prefix: "vision_tower.",
    tensors: &[
        TENSORS,
        &[
            transformed("multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm", Transform::AddOne),
            tensor("multi_modal_projector.mm_input_projection_weight", GEMMA3_PROJECTION),
        ],
    ],
    derived: gemma3_keys,
    ..EncoderCheckpoint::ENCODER
};

pub(super) const IDEFICS3: EncoderCheckpoint = EncoderCheckpoint {
    model_types: &["idefics3", "smolvlm"],
    projector: "idefics3",
    encoder: &[
        size("num_hidden_layers", "block_count", Need::Or(12)),
        size("hidden_size", "embedding_length", Need::Or(1152)),
        size("intermediate_size", "feed_forward_length", Need::Or(3072)),
        size("num_attention_heads", "attention.head_count", Need::Or(16)),
        float("layer_norm_eps", "attention.layer_norm_epsilon", Need::Or(1e-6)),
        side("image_size", "image_size", 224),
        side("patch_size", "patch_size", 32),
        one_of("num_channels", &["3"]),
    ],
    model: &[size("scale_factor", "projector.scale_factor", Need::Or(2))],
    processor: &[
        one_of("do_resize", &["true"]),
        one_of("do_rescale", &["true"]),
        one_of("do_image_splitting", &["true"]),
        one_of("resample", &["1"]),
        setting("size.longest_edge", Meaning::Derived("preproc_image_size")),
    ],
    prefix: "model.vision_model.",
    tensors: &[TENSORS, &[tensor("connector.modality_projection.proj", "mm.model.fc")]],
    derived: idefics3_keys,
    ..EncoderCheckpoint::ENCODER
};

const TOKENS: &str = "mm_tokens_per_image";

const TENSORS: &[TensorMapping] = &[
    tensor("embeddings.patch_embedding", "v.patch_embd"),
    tensor("embeddings.position_embedding", "v.position_embd"),
    tensor("layer_norm1", "ln1"),
    tensor("layer_norm2", "ln2"),
    tensor("self_attn.q_proj", "attn_q"),
    tensor("self_attn.k_proj", "attn_k"),
    tensor("self_attn.v_proj", "attn_v"),
    tensor("self_attn.out_proj", "attn_out"),
    tensor("mlp.fc1", "ffn_up"),
    tensor("mlp.fc2", "ffn_down"),
    tensor("post_layernorm", "v.post_ln"),
];

/// Returns the key for the side of a block in patches, which follows from the number of blocks.
fn gemma3_keys(settings: &EncoderSettings) -> Result<KeyValues> {
    let tokens = settings.model.size(TOKENS)?.unwrap_or(256);
    let blocks = u64::from(tokens.isqrt());
    let patches = settings.value("image_size").checked_div(settings.value("patch_size")).unwrap_or(0);
    if blocks == 0 || blocks * blocks != u64::from(tokens) || !patches.is_multiple_of(blocks) {
        let what = format!("is {tokens}, but {patches} x {patches} patches do not divide into that many squares");
        return Err(settings.model.error(TOKENS, what));
    }
    settings.check_side_of_pictures()?;
    Ok(vec![("projector.scale_factor", Value::U64(patches / blocks))])
}

/// Returns the key for the longer side of a scaled image, and checks the side of its tiles.
fn idefics3_keys(settings: &EncoderSettings) -> Result<KeyValues> {
    const EDGE: &str = "longest_edge";
    let edge = |name: &str| match settings.processor.nested(name)? {
        Some(size) => size.size(EDGE)?.ok_or_else(|| size.error(EDGE, "is missing")),
        None => Err(settings.processor.error(name, "is missing")),
    };
    let (longest, tile, expected) = (edge("size")?, edge("max_image_size")?, settings.value("image_size"));
    if u64::from(tile) != expected {
        let what = format!("has tiles of {tile} pixels a side, but the encoder's pictures have {expected}");
        return Err(settings.processor.error("max_image_size", what));
    }
    Ok(vec![("preproc_image_size", Value::U32(longest))])
}

pub(super) fn build_gemma3(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let x = patches(&mut encoder)?;
    let mean = encoder.mean_of_blocks(x);
    let normed = encoder.graph.rms_norm(mean, "mm.soft_emb_norm", config.hidden, config.eps)?;
    let projection = encoder.graph.weight(GEMMA3_PROJECTION, config.text_width, config.hidden)?;
    let rows = encoder.graph.ops.matmul(normed, projection);
    encoder.finish(rows)
}

pub(super) fn build_idefics3(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let x = patches(&mut encoder)?;
    let joined = encoder.join_blocks(x);
    let width = config.hidden * config.block.pow(2);
    let rows = encoder.graph.linear(joined, "mm.model.fc", config.text_width, width)?;
    encoder.finish(rows)
}

/// Returns the patches after all layers.
fn patches(encoder: &mut Encoder) -> Result<ValueId> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let scale = (config.head_dim() as f32).sqrt().recip();
    let x = encoder.patches(&["v.patch_embd.weight"])?;
    let x = encoder.add_vector(x, "v.patch_embd.bias", hidden)?;
    let mut x = encoder.add_positions(x)?;
    for index in 0..config.layers {
        let normed = encoder.norm(Norm::Layer, x, &format!("v.blk.{index}.ln1"), hidden, eps)?;
        let heads = encoder.queries_keys_values(normed, index)?;
        let attended = encoder.attend(heads, index, scale);
        let output = encoder.attention_output(attended, index)?;
        x = encoder.graph.ops.add(x, output);
        let normed = encoder.norm(Norm::Layer, x, &format!("v.blk.{index}.ln2"), hidden, eps)?;
        let output = encoder.feed_forward(normed, index)?;
        x = encoder.graph.ops.add(x, output);
    }
    encoder.norm(Norm::Layer, x, "v.post_ln", hidden, eps)
}
