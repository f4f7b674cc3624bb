//! SmolLM3 ([Bakouch et al. 2025](https://huggingface.co/blog/smollm3)): Llama's wiring, but that every fourth layer does
//! not encode positions ([Yang et al. 2025](https://arxiv.org/abs/2501.18795)).

use serde_json::Value as Json;

use super::{
    Checkpoint, Config, Model,
    checkpoint::{BIASES, FULL_ATTENTION, SILU, SIZES, check},
    keys::Keys,
    llama::BLOCK,
    wiring::Wiring,
};
use crate::Result;

/// One in so many layers, the last of each, is without rotation.
const UNROTATED: usize = 4;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["smollm3"],
    config: &[SIZES, SILU, FULL_ATTENTION, BIASES, &[check("no_rope_layers", are_rotated_otherwise)]],
    tied: true,
    rope_theta: 2_000_000.0,
    permuted: true,
    ..Checkpoint::DECODER
};

/// The setting has a 0 for each layer that is not rotated, and a 1 for each other.
fn are_rotated_otherwise(layers: &Json) -> Option<String> {
    let rotated = |n: usize| !(n + 1).is_multiple_of(UNROTATED);
    let (n, layer) = layers.as_array()?.iter().enumerate().find(|(n, layer)| **layer != u64::from(rotated(*n)))?;
    Some(format!("has {layer} for layer {n}, which is not built: one in {UNROTATED} is unrotated"))
}

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.layers.iter_mut().skip(UNROTATED - 1).step_by(UNROTATED).for_each(|layer| layer.rope = None);
    BLOCK.model(config, wiring)
}
