//! SmolLM3 ([Bakouch et al. 2025](https://huggingface.co/blog/smollm3)): Llama's wiring, but that every fourth layer does
//! not encode positions ([Yang et al. 2025](https://arxiv.org/abs/2501.18795)).

use super::{Config, Model, keys::Keys, llama::BLOCK, wiring::Wiring};
use crate::Result;

/// One in so many layers, the last of each, is without rotation.
const UNROTATED: usize = 4;

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.layers.iter_mut().skip(UNROTATED - 1).step_by(UNROTATED).for_each(|layer| layer.rope = None);
    BLOCK.model(config, wiring)
}
