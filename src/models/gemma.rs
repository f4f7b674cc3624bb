//! Gemma, the first one ([Gemma Team 2024](https://arxiv.org/abs/2403.08295)): rows of the embedding that grow by the root
//! of their width, pre-norm blocks, wide heads that share few or one for keys and values, and a feed-forward gated by
//! GELU. The converter has added the one that the checkpoint's norm weights lack.

use super::{Config, Model, block::Block, keys::Keys, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, RopeStyle},
};

const BLOCK: Block =
    Block { style: RopeStyle::Halves, head_norms: false, post_norms: false, activation: Activation::Gelu };

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    BLOCK.model(config(keys)?, wiring)
}

/// What all Gemmas have in common.
pub(super) fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read(keys)?;
    config.embedding_scale = (config.hidden as f32).sqrt();
    Ok(config)
}
