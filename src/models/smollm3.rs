//! SmolLM3 ([Bakouch et al. 2025](https://huggingface.co/blog/smollm3)): Llama's wiring, but that every fourth layer does
//! not encode positions ([Yang et al. 2025](https://arxiv.org/abs/2501.18795)).

use super::{Config, llama::BLOCK, wiring::Wiring};
use crate::{Result, graph::Graph};

/// One in so many layers, the last of each, is without rotation.
const UNROTATED: usize = 4;

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = wiring.builder.constant(config.rope.frequencies());
    let x = wiring.embedding(config)?;
    let rotated = |n: usize| !(n + 1).is_multiple_of(UNROTATED);
    let x = BLOCK.layers(config, &mut wiring, x, |n| rotated(n).then_some(frequencies))?;
    wiring.finish(config, x)
}
