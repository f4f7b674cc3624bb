//! Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971), [Llama Team 2024](https://arxiv.org/abs/2407.21783))
//! and the many models of its wiring: pre-norm blocks, grouped-query attention, a SwiGLU feed-forward. The converter
//! has permuted queries and keys so that adjacent elements are rotated together.

use super::{Config, block::Block, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, Graph, RopeStyle, ValueId},
};

pub(super) const BLOCK: Block = Block { style: RopeStyle::Adjacent, head_norms: false, activation: Activation::Silu };

pub(super) fn build(config: &Config, mut wiring: Wiring) -> Result<Graph> {
    let frequencies = frequencies(config, &mut wiring)?;
    let x = wiring.embedding(config)?;
    let x = BLOCK.layers(config, &mut wiring, x, |_| Some(frequencies))?;
    wiring.finish(config, x)
}

/// The frequencies, divided by what Llama 3.1 and later stretch each of them with.
fn frequencies(config: &Config, wiring: &mut Wiring) -> Result<ValueId> {
    let plain = wiring.builder.constant(config.rope.frequencies());
    let divisors = wiring.optional_weight("rope_freqs.weight", 1, config.rope.dim / 2)?;
    Ok(divisors.map_or(plain, |divisors| wiring.builder.div(plain, divisors)))
}
