//! Qwen3, dense ([Qwen Team 2025](https://arxiv.org/abs/2505.09388)): pre-norm blocks,
//! grouped-query attention that norms each head of queries and keys before it is rotated, and a
//! SwiGLU feed-forward network.

use super::{
    Checkpoint, Config, Model,
    block::{Block, HeadNorms},
    checkpoint::{BIASES, FULL_ATTENTION, Need, SILU, SIZES, Setting, size},
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

pub(super) const BLOCK: Block = Block { head_norms: HeadNorms::Each, ..Block::DECODER };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen3"],
    settings: &[HEADS, SIZES, SILU, FULL_ATTENTION, BIASES],
    ..Checkpoint::DECODER
};

pub(super) const HEADS: &[Setting] = &[size("head_dim", "attention.key_length", Need::Or(128))];

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read(keys)?, graph)
}
