//! Phi-1, Phi-1.5 and Phi-2 ([Li et al. 2023](https://arxiv.org/abs/2309.05463)): attention and a
//! feed-forward network of GELU without a gate read the same layer norm. Heads are partly rotated,
//! and all matrices have biases.

use super::{
    Config, Model,
    block::{Block, FeedForwardInput},
    command_r::LAYER_NORM,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::Activation};

const BLOCK: Block = Block {
    feed_forward_input: FeedForwardInput::Shared,
    activation: Activation::Gelu,
    gated: false,
    ..Block::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read_as(keys, &LAYER_NORM)?, graph)
}
