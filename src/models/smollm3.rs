//! SmolLM3 ([Bakouch et al. 2025](https://huggingface.co/blog/smollm3)): Llama's wiring, but that every fourth layer does
//! not encode positions ([Yang et al. 2025](https://arxiv.org/abs/2501.18795)).

use super::{Config, llama, wiring::Wiring};
use crate::{Result, graph::Graph};

/// One in so many layers, the last of each, is without rotation.
const UNROTATED: usize = 4;

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = wiring.builder.constant(config.rope.frequencies());
    let mut x = wiring.embedding(config)?;
    for n in 0..config.layers {
        let frequencies = (!(n + 1).is_multiple_of(UNROTATED)).then_some(frequencies);
        x = llama::layer(config, &mut wiring, frequencies, x, n)?;
    }
    wiring.finish(config, x)
}
