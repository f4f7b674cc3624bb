//! The vision encoder of Qwen3-VL ([Qwen Team 2025](https://arxiv.org/abs/2511.21631)) and
//! Qwen3.5: patches with learned and rotary positions, and a merger of four patches. After some
//! layers a merger more makes elements for the first layers of the text model.

use super::{
    layers::{Encoder, Norm},
    qwen,
};
use crate::{
    Result,
    gguf::Value,
    graph::{Graph, RopeStyle, ValueId},
    models::checkpoint::{
        EncoderCheckpoint, EncoderSettings, KeyValues, Meaning, Need, one_of, setting, side, size, tensor,
    },
};

pub(super) const CHECKPOINT: EncoderCheckpoint = EncoderCheckpoint {
    model_types: &["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"],
    projector: "qwen3vl_merger",
    activation: ("hidden_act", &["gelu_pytorch_tanh"]),
    encoder: &[
        size("depth", "block_count", Need::Or(27)),
        size("hidden_size", "embedding_length", Need::Or(1152)),
        size("intermediate_size", "feed_forward_length", Need::Or(4304)),
        size("num_heads", "attention.head_count", Need::Or(16)),
        side("patch_size", "patch_size", 16),
        size("spatial_merge_size", "spatial_merge_size", Need::Or(2)),
        one_of("temporal_patch_size", &["2"]),
        one_of("in_channels", &["3"]),
        setting(POSITIONS, Meaning::Derived("image_size")),
    ],
    tensors: &[&[
        qwen::PATCHES,
        tensor("patch_embed.proj", "v.patch_embd"),
        tensor("pos_embed", "v.position_embd"),
        tensor("norm1", "ln1"),
        tensor("norm2", "ln2"),
        tensor("attn.qkv", "attn_qkv"),
        tensor("attn.proj", "attn_out"),
        tensor("mlp.linear_fc1", "ffn_up"),
        tensor("mlp.linear_fc2", "ffn_down"),
        tensor("merger.norm", "v.post_ln"),
        tensor("merger.linear_fc1", "mm.0"),
        tensor("merger.linear_fc2", "mm.2"),
        tensor("deepstack_merger_list.*.norm", "v.deepstack.*.norm"),
        tensor("deepstack_merger_list.*.linear_fc1", "v.deepstack.*.fc1"),
        tensor("deepstack_merger_list.*.linear_fc2", "v.deepstack.*.fc2"),
    ]],
    derived: |settings| {
        let mut keys = qwen::keys(settings)?;
        keys.extend(image_size(settings)?);
        Ok(keys)
    },
    ..qwen::CHECKPOINT
};

const POSITIONS: &str = "num_position_embeddings";

/// Returns the key for the side of the picture that the table of positions is made for.
fn image_size(settings: &EncoderSettings) -> Result<KeyValues> {
    let positions = settings.encoder.size(POSITIONS)?.unwrap_or(2304);
    let side = positions.isqrt();
    if side * side != positions {
        return Err(settings.encoder.error(POSITIONS, format!("is {positions}, but a square number is expected")));
    }
    Ok(vec![("image_size", Value::U64(settings.value("patch_size").saturating_mul(u64::from(side))))])
}

pub(super) fn build(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let scale = (config.head_dim() as f32).sqrt().recip();
    // The kernel of two frames, of which an image is two equal ones.
    let x = encoder.patches(&["v.patch_embd.weight", "v.patch_embd.weight.1"])?;
    let x = encoder.add_vector(x, "v.patch_embd.bias", hidden)?;
    let mut x = encoder.add_positions(x)?;
    let mut deepstack = vec![];
    for index in 0..config.layers {
        let normed = encoder.norm(Norm::Layer, x, &format!("v.blk.{index}.ln1"), hidden, eps)?;
        let [q, k, v] = encoder.queries_keys_values(normed, index)?;
        let [q, k] = encoder.rotate([q, k], RopeStyle::Halves);
        let attended = encoder.attend([q, k, v], index, scale);
        let output = encoder.attention_output(attended, index)?;
        x = encoder.graph.ops.add(x, output);
        let normed = encoder.norm(Norm::Layer, x, &format!("v.blk.{index}.ln2"), hidden, eps)?;
        let output = encoder.feed_forward(normed, index)?;
        x = encoder.graph.ops.add(x, output);
        if config.deepstack.contains(&index) {
            deepstack.push(merge_deepstack(&mut encoder, x, index)?);
        }
    }
    let normed = encoder.norm(Norm::Layer, x, "v.post_ln", hidden, eps)?;
    let joined = encoder.join_blocks(normed);
    let width = hidden * config.block.pow(2);
    let rows = encoder.perceptron(joined, ["mm.0", "mm.2"], [width, width], config.projector_activation())?;
    let parts = [&[rows], deepstack.as_slice()].concat();
    let rows = if deepstack.is_empty() { rows } else { encoder.graph.ops.concat(&parts) };
    encoder.finish(rows)
}

/// Returns the rows for a layer of the text model from the patches after layer `index`.
fn merge_deepstack(encoder: &mut Encoder, x: ValueId, index: usize) -> Result<ValueId> {
    let config = encoder.config;
    let width = config.hidden * config.block.pow(2);
    let name = |part: &str| format!("v.deepstack.{index}.{part}");
    let joined = encoder.join_blocks(x);
    let normed = encoder.norm(Norm::Layer, joined, &name("norm"), width, config.eps)?;
    encoder.perceptron(normed, [&name("fc1"), &name("fc2")], [width, width], config.projector_activation())
}
