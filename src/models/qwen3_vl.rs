//! The text model of Qwen3-VL ([Qwen Team 2025](https://arxiv.org/abs/2511.21631)), dense and with
//! experts: Qwen3 with rotary embedding whose pairs turn by an image's position, rows and columns
//! in turn, and with further rows of the encoder added to the first layers.

use super::{
    Checkpoint, Config, Model,
    checkpoint::{
        BIASES, EXPERTS, FULL_ATTENTION, KeyValues, SILU, SIZES, Settings, TENSORS, Transform, one_of, transformed,
    },
    keys::Keys,
    model_builder::ModelBuilder,
    qwen3::{self, BLOCK},
    qwen3_moe::{EXPERTS_OF_FFN, MIXTURE},
    vision::DEEPSTACK,
};
use crate::{
    Result,
    gguf::{TensorInfo, Value},
    graph::RopeAxes,
};

pub(super) const CHECKPOINT: Checkpoint =
    Checkpoint { model_types: &["qwen3_vl_text"], rope_theta: 500_000.0, derived: deepstack, ..qwen3::CHECKPOINT };

pub(super) const CHECKPOINT_MOE: Checkpoint = Checkpoint {
    model_types: &["qwen3_vl_moe_text"],
    settings: &[
        EXPERTS,
        // Some layers without experts are not supported.
        &[one_of("decoder_sparse_step", &["1"]), one_of("mlp_only_layers", &["[]"])],
        SIZES,
        SILU,
        FULL_ATTENTION,
        BIASES,
    ],
    tensors: &[
        &[
            // Published checkpoints have rows and columns of these matrices exchanged.
            transformed("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", Transform::WidthAt(2)),
            transformed("mlp.experts.down_proj", "ffn_down_exps.weight", Transform::WidthAt(1)),
        ],
        MIXTURE,
        TENSORS,
    ],
    ..CHECKPOINT
};

/// Returns the key for the number of layers to which image rows add elements: as many as the
/// encoder has mergers for.
fn deepstack(settings: &Settings, _: &[TensorInfo]) -> Result<KeyValues> {
    let Some(encoder) = settings.whole().nested("vision_config")? else { return Ok(vec![]) };
    let layers = encoder.get("deepstack_visual_indexes").and_then(|layers| layers.as_array());
    Ok(vec![(DEEPSTACK, Value::U64(layers.map_or(0, |layers| layers.len() as u64)))])
}

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(config(keys)?, graph)
}

pub(super) fn build_moe(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys)?;
    config.require_experts(keys, &EXPERTS_OF_FFN)?;
    BLOCK.model(config, graph)
}

fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read(keys)?;
    config.set_axes(keys, RopeAxes::Interleaved)?;
    config.deepstack = keys.count(DEEPSTACK, config.layers.len())?;
    Ok(config)
}
