//! Qwen2 and Qwen2.5 ([Yang et al. 2024](https://arxiv.org/abs/2407.10671)): pre-norm blocks, grouped-query attention with
//! biases on queries, keys and values, and a SwiGLU feed-forward.

use super::{Config, block::Block, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, Graph, RopeStyle},
};

const BLOCK: Block = Block { style: RopeStyle::Halves, head_norms: false, activation: Activation::Silu };

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = wiring.builder.constant(config.rope.frequencies());
    let x = wiring.embedding(config)?;
    let x = BLOCK.layers(config, &mut wiring, x, |_| Some(frequencies))?;
    wiring.finish(config, x)
}
