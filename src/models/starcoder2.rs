//! StarCoder2 ([Lozhkov et al. 2024](https://arxiv.org/abs/2402.19173)): layer norms, biases
//! everywhere, and a feed-forward network of GELU without a gate.

use super::{Config, Model, block::Block, command_r::LAYER_NORM, keys::Keys, model_builder::ModelBuilder};
use crate::{Result, graph::Activation};

const BLOCK: Block = Block { activation: Activation::Gelu, gated: false, ..Block::DECODER };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read_as(keys, &LAYER_NORM)?, graph)
}
