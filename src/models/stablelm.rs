//! StableLM 2 ([Bellagente et al. 2024](https://arxiv.org/abs/2402.17834)): layer norms and partly
//! rotated heads. Some models norm each head of queries and keys, and let attention and the
//! feed-forward network read the same rows.

use super::{
    Config, Model,
    block::{Block, FeedForwardInput, HeadNorms},
    command_r::LAYER_NORM,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block {
    head_norms: HeadNorms::Own,
    feed_forward_input: FeedForwardInput::NormOrShared("ffn_norm"),
    ..Block::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    // The blocks are the same in both kinds: the file's norms tell them apart.
    keys.bool("use_parallel_residual")?;
    BLOCK.model(Config::read_as(keys, &LAYER_NORM)?, graph)
}
