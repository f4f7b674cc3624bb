//! Qwen2 and Qwen2.5 ([Yang et al. 2024](https://arxiv.org/abs/2407.10671)): pre-norm blocks,
//! grouped-query attention with biases of queries, keys and values, and a SwiGLU feed-forward
//! network.

use super::{Checkpoint, Config, Model, block::Block, keys::Keys, model_builder::ModelBuilder};
use crate::Result;

pub(super) const BLOCK: Block = Block::DECODER;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint { model_types: &["qwen2"], ..Checkpoint::DECODER };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read(keys)?, graph)
}
