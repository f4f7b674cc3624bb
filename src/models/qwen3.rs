//! Qwen3, dense ([Qwen Team 2025](https://arxiv.org/abs/2505.09388)): pre-norm blocks, grouped-query attention whose
//! queries and keys are normed head by head before they are rotated, and a SwiGLU feed-forward.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{BIASES, FULL_ATTENTION, Key, Need, SILU, SIZES, size},
    keys::Keys,
    wiring::Wiring,
};
use crate::{
    Result,
    graph::{Activation, RopeStyle},
};

pub(super) const BLOCK: Block =
    Block { style: RopeStyle::Halves, head_norms: true, post_norms: false, activation: Activation::Silu };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen3"],
    config: &[HEADS, SIZES, SILU, FULL_ATTENTION, BIASES],
    ..Checkpoint::DECODER
};

pub(super) const HEADS: &[Key] = &[size("head_dim", "attention.key_length", Need::Or(128))];

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    BLOCK.model(Config::read(keys)?, wiring)
}
