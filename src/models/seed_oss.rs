//! Seed-OSS ([ByteDance Seed Team 2025](https://github.com/ByteDance-Seed/seed-oss)): pre-norm
//! blocks and grouped-query attention with biases of queries, keys and values.

use super::{
    Checkpoint, Config, Model,
    block::{Block, FeedForwardInput},
    checkpoint::{FULL_ATTENTION, SILU, SIZES, TENSORS, tensor},
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block { feed_forward_input: FeedForwardInput::Norm("post_attention_norm"), ..Block::DECODER };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["seed_oss"],
    settings: &[SIZES, SILU, FULL_ATTENTION],
    tensors: &[&[tensor("post_attention_layernorm", "post_attention_norm")], TENSORS],
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read(keys)?, graph)
}
