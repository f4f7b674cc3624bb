//! The vision encoder of Gemma 4: patches with a learned position for the column and for the row,
//! heads that are normed and rotated by both, norms before and after each part of a layer, and
//! matrices whose inputs and outputs are limited.

use super::layers::{Encoder, Norm};
use crate::{
    Result,
    gguf::Value,
    graph::{Graph, RopeStyle, ValueId},
    models::checkpoint::{
        EncoderCheckpoint, EncoderSettings, KeyValues, Meaning, Need, Transform, float, one_of, setting, side, size,
        tensor, transformed,
    },
};

pub(super) const CHECKPOINT: EncoderCheckpoint = EncoderCheckpoint {
    model_types: &["gemma4"],
    projector: "gemma4v",
    activation: ("hidden_activation", &["gelu_pytorch_tanh"]),
    encoder: &[
        size("num_hidden_layers", "block_count", Need::Or(16)),
        size("hidden_size", "embedding_length", Need::Or(768)),
        size("intermediate_size", "feed_forward_length", Need::Or(3072)),
        size("num_attention_heads", "attention.head_count", Need::Or(12)),
        float("rms_norm_eps", "attention.layer_norm_epsilon", Need::Or(1e-6)),
        side("patch_size", "patch_size", 16),
        size("pooling_kernel_size", "projector.scale_factor", Need::Or(3)),
        one_of("attention_bias", &["false"]),
    ],
    processor: &[
        one_of("do_resize", &["true"]),
        one_of("do_rescale", &["true"]),
        one_of("resample", &["3"]),
        setting(TOKENS, Meaning::Derived("image_max_pixels")),
    ],
    normalizes: false,
    prefix: "model.vision_tower.",
    tensors: &[&[
        transformed("patch_embedder.input_proj", "v.patch_embd", Transform::ChannelsFirst),
        tensor("patch_embedder.position_embedding_table", "v.position_embd.weight"),
        tensor("input_layernorm", "ln1"),
        tensor("post_attention_layernorm", "attn_post_norm"),
        tensor("pre_feedforward_layernorm", "ln2"),
        tensor("post_feedforward_layernorm", "ffn_post_norm"),
        tensor("self_attn.q_norm", "attn_q_norm"),
        tensor("self_attn.k_norm", "attn_k_norm"),
        // A matrix with limits has them beside itself.
        tensor("self_attn.q_proj.linear", "attn_q"),
        tensor("self_attn.k_proj.linear", "attn_k"),
        tensor("self_attn.v_proj.linear", "attn_v"),
        tensor("self_attn.o_proj.linear", "attn_out"),
        tensor("mlp.gate_proj.linear", "ffn_gate"),
        tensor("mlp.up_proj.linear", "ffn_up"),
        tensor("mlp.down_proj.linear", "ffn_down"),
        tensor("self_attn.q_proj", "attn_q"),
        tensor("self_attn.k_proj", "attn_k"),
        tensor("self_attn.v_proj", "attn_v"),
        tensor("self_attn.o_proj", "attn_out"),
        tensor("mlp.gate_proj", "ffn_gate"),
        tensor("mlp.up_proj", "ffn_up"),
        tensor("mlp.down_proj", "ffn_down"),
        tensor("std_bias", "v.std_bias"),
        tensor("std_scale", "v.std_scale"),
        tensor("embed_vision.embedding_projection", "mm.input_projection"),
    ]],
    derived: keys,
    ..EncoderCheckpoint::ENCODER
};

const TOKENS: &str = "max_soft_tokens";

/// Returns the keys for the largest number of pixels and for the side of a block, and checks that
/// heads are of the supported kind.
fn keys(settings: &EncoderSettings) -> Result<KeyValues> {
    settings.check_processor("patch_size", "patch_size")?;
    settings.check_processor("pooling_kernel_size", "projector.scale_factor")?;
    let (hidden, heads) = (settings.value("embedding_length"), settings.value("attention.head_count"));
    for (name, expected) in [("num_key_value_heads", heads), ("head_dim", hidden.checked_div(heads).unwrap_or(0))] {
        if let Some(value) = settings.encoder.size(name)?.filter(|value| u64::from(*value) != expected) {
            let what = format!("is {value}, but only {expected} is supported for {heads} heads in {hidden} elements");
            return Err(settings.encoder.error(name, what));
        }
    }
    let rope = settings.encoder.nested("rope_parameters")?;
    if let Some(rope) = rope
        && let Some(theta) = rope.float("rope_theta")?.filter(|theta| *theta != 100.0)
    {
        return Err(rope.error("rope_theta", format!("is {theta}, but only 100 is supported")));
    }
    let tokens = u64::from(settings.processor.size(TOKENS)?.unwrap_or(280));
    let block = settings.value("patch_size").saturating_mul(settings.value("projector.scale_factor"));
    let pixels = tokens.saturating_mul(block.saturating_pow(2));
    Ok(vec![("image_max_pixels", Value::U64(pixels)), ("image_size", Value::U64(block))])
}

pub(super) fn build(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let (hidden, ffn, eps) = (config.hidden, config.ffn, config.eps);
    let x = encoder.patches(&["v.patch_embd.weight"])?;
    let mut x = encoder.add_positions(x)?;
    for index in 0..config.layers {
        let name = |part: &str| format!("v.blk.{index}.{part}");
        let normed = encoder.norm(Norm::Rms, x, &name("ln1"), hidden, eps)?;
        let heads = heads(&mut encoder, normed, index)?;
        let attended = encoder.attend(heads, index, 1.0);
        let output = limited(&mut encoder, attended, &name("attn_out"), hidden, hidden)?;
        let output = encoder.norm(Norm::Rms, output, &name("attn_post_norm"), hidden, eps)?;
        x = encoder.graph.ops.add(x, output);
        let normed = encoder.norm(Norm::Rms, x, &name("ln2"), hidden, eps)?;
        let gate = limited(&mut encoder, normed, &name("ffn_gate"), ffn, hidden)?;
        let gate = encoder.graph.ops.activate(config.activation, gate);
        let up = limited(&mut encoder, normed, &name("ffn_up"), ffn, hidden)?;
        let product = encoder.graph.ops.mul(gate, up);
        let output = limited(&mut encoder, product, &name("ffn_down"), hidden, ffn)?;
        let output = encoder.norm(Norm::Rms, output, &name("ffn_post_norm"), hidden, eps)?;
        x = encoder.graph.ops.add(x, output);
    }
    let rows = project(&mut encoder, x)?;
    encoder.finish(rows)
}

/// Returns the normed and rotated queries and keys, and the normed values, of layer `index`.
fn heads(encoder: &mut Encoder, x: ValueId, index: usize) -> Result<[ValueId; 3]> {
    let config = encoder.config;
    let (hidden, head_dim, eps) = (config.hidden, config.head_dim(), config.eps);
    let name = |part: &str| format!("v.blk.{index}.{part}");
    let q = limited(encoder, x, &name("attn_q"), hidden, hidden)?;
    let k = limited(encoder, x, &name("attn_k"), hidden, hidden)?;
    let v = limited(encoder, x, &name("attn_v"), hidden, hidden)?;
    let q = encoder.graph.rms_norm(q, &name("attn_q_norm"), head_dim, eps)?;
    let k = encoder.graph.rms_norm(k, &name("attn_k_norm"), head_dim, eps)?;
    let ones = encoder.graph.ops.constant(vec![1.0; head_dim]);
    let v = encoder.graph.ops.rms_norm(v, ones, eps);
    let [q, k] = encoder.rotate([q, k], RopeStyle::Quarters);
    Ok([q, k, v])
}

/// Returns `x w^T` for the matrix `NAME.weight`, with the limits of `x` and of the product that the
/// file has.
fn limited(encoder: &mut Encoder, x: ValueId, name: &str, rows: usize, columns: usize) -> Result<ValueId> {
    let x = clamp(encoder, x, name, "input")?;
    let weight = encoder.graph.weight(&format!("{name}.weight"), rows, columns)?;
    let product = encoder.graph.ops.matmul(x, weight);
    clamp(encoder, product, name, "output")
}

fn clamp(encoder: &mut Encoder, x: ValueId, name: &str, side: &str) -> Result<ValueId> {
    let Some(lower) = encoder.graph.optional_weight(&format!("{name}.{side}_min"), 1, 1)? else { return Ok(x) };
    let upper = encoder.graph.weight(&format!("{name}.{side}_max"), 1, 1)?;
    Ok(encoder.graph.ops.clamp(x, [lower, upper]))
}

/// Returns the rows of the text model: means of blocks, standardised, normed and projected.
fn project(encoder: &mut Encoder, x: ValueId) -> Result<ValueId> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let mean = encoder.mean_of_blocks(x);
    let factor = (hidden as f32).sqrt();
    let rows = match encoder.graph.optional_weight("v.std_bias", 1, hidden)? {
        None => encoder.graph.scale(mean, factor),
        Some(bias) => {
            // Rows minus the bias: an op on the bias alone would be for each step to compute.
            let negated = encoder.graph.scale(mean, -factor);
            let sum = encoder.graph.ops.add(negated, bias);
            let difference = encoder.graph.scale(sum, -1.0);
            let scale = encoder.graph.weight("v.std_scale", 1, hidden)?;
            encoder.graph.ops.mul(difference, scale)
        }
    };
    let ones = encoder.graph.ops.constant(vec![1.0; hidden]);
    let normed = encoder.graph.ops.rms_norm(rows, ones, eps);
    limited(encoder, normed, "mm.input_projection", config.text_width, hidden)
}
