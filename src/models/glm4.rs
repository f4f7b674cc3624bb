//! GLM-4 of 2025 ([GLM Team 2024](https://arxiv.org/abs/2406.12793)): partly rotated heads, and
//! norms both before and after attention and the feed-forward network.

use super::{Config, Model, block::Block, keys::Keys, model_builder::ModelBuilder};
use crate::{Result, graph::RopeStyle};

const BLOCK: Block = Block { style: RopeStyle::Adjacent, post_norms: true, ..Block::DECODER };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.split_mtp(keys)?;
    BLOCK.model(config, graph)
}
