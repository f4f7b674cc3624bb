//! The text model of Qwen2-VL and Qwen2.5-VL ([Wang et al.
//! 2024](https://arxiv.org/abs/2409.12191), [Bai et al. 2025](https://arxiv.org/abs/2502.13923)):
//! Qwen2 with rotary embedding in sections, which turn by an image's position, rows and columns.

use super::{
    Checkpoint, Config, Model,
    checkpoint::{FULL_ATTENTION, Need, SILU, SIZES, float},
    keys::Keys,
    model_builder::ModelBuilder,
    qwen2::BLOCK,
    vision::Convention,
};
use crate::{Result, graph::RopeAxes};

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    // Without `_text`, the settings of the text model are beside those of the encoder.
    model_types: &["qwen2_vl_text", "qwen2_5_vl_text", "qwen2_vl", "qwen2_5_vl"],
    settings: &[
        &[float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-5))],
        SIZES,
        SILU,
        FULL_ATTENTION,
    ],
    rope_theta: 1_000_000.0,
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.set_axes(keys, RopeAxes::Sections)?;
    if keys.images.is_some_and(|images| images.convention == Convention::LlamaCpp) {
        // llama.cpp does not read the key for this architecture.
        config.rms_eps = 0.0;
    }
    BLOCK.model(config, graph)
}
