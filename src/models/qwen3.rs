//! Qwen3, dense ([Qwen Team 2025](https://arxiv.org/abs/2505.09388)): pre-norm blocks, grouped-query attention whose
//! queries and keys are normed head by head before they are rotated, and a SwiGLU feed-forward.

use super::{Config, block::Block, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, Graph, RopeStyle},
};

const BLOCK: Block = Block { style: RopeStyle::Halves, head_norms: true, activation: Activation::Silu };

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = wiring.builder.constant(config.rope.frequencies());
    let x = wiring.embedding(config)?;
    let x = BLOCK.layers(config, &mut wiring, x, |_| Some(frequencies))?;
    wiring.finish(config, x)
}
