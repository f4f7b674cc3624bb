//! The text model of Qwen3-VL ([Qwen Team 2025](https://arxiv.org/abs/2511.21631)), dense and with
//! experts: Qwen3 with rotary embedding whose pairs turn by an image's position, rows and columns
//! in turn, and with further rows of the encoder added to the first layers.

use super::{Config, Model, keys::Keys, model_builder::ModelBuilder, qwen3::BLOCK, vision::DEEPSTACK};
use crate::{Result, graph::RopeAxes};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(config(keys)?, graph)
}

pub(super) fn build_moe(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys)?;
    config.require_experts(keys, |ffn, top_k| ffn / top_k)?;
    BLOCK.model(config, graph)
}

fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read(keys)?;
    config.set_axes(keys, RopeAxes::Interleaved)?;
    config.deepstack = keys.count(DEEPSTACK, config.layers.len())?;
    Ok(config)
}
