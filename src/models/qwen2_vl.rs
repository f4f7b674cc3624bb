//! The text model of Qwen2-VL and Qwen2.5-VL ([Wang et al.
//! 2024](https://arxiv.org/abs/2409.12191), [Bai et al. 2025](https://arxiv.org/abs/2502.13923)):
//! Qwen2 with rotary embedding in sections, which turn by an image's position, rows and columns.

use super::{Config, Model, keys::Keys, model_builder::ModelBuilder, qwen2::BLOCK, vision::Convention};
use crate::{Result, graph::RopeAxes};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.set_axes(keys, RopeAxes::Sections)?;
    if keys.images.is_some_and(|images| images.convention == Convention::LlamaCpp) {
        // llama.cpp does not read the key for this architecture.
        config.rms_eps = 0.0;
    }
    BLOCK.model(config, graph)
}
