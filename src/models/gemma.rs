//! Gemma, the first one ([Gemma Team 2024](https://arxiv.org/abs/2403.08295)): rows of the embedding that grow by the root
//! of their width, pre-norm blocks, wide heads that share few or one for keys and values, and a feed-forward gated by
//! GELU. The converter has added the one that the checkpoint's norm weights lack.

use super::{Config, block::Block, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, Graph, RopeStyle},
};

const BLOCK: Block = Block { style: RopeStyle::Halves, head_norms: false, activation: Activation::Gelu };

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = wiring.builder.constant(config.rope.frequencies());
    let x = wiring.embedding(config)?;
    let x = wiring.scale(x, (config.hidden as f32).sqrt(), config.hidden);
    let x = BLOCK.layers(config, &mut wiring, x, |_| Some(frequencies))?;
    wiring.finish(config, x)
}
