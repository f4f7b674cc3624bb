//! SmolLM3 ([Bakouch et al. 2025](https://huggingface.co/blog/smollm3)): Llama without rotary
//! embedding in every fourth layer ([Yang et al. 2025](https://arxiv.org/abs/2501.18795)).

use serde_json::Value as Json;

use super::{
    Checkpoint, Config, Model,
    checkpoint::{BIASES, FULL_ATTENTION, SILU, SIZES, check},
    keys::Keys,
    llama::BLOCK,
    model_builder::ModelBuilder,
};
use crate::Result;

/// The last of each `PERIOD` layers is not rotated.
const PERIOD: usize = 4;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["smollm3"],
    settings: &[SIZES, SILU, FULL_ATTENTION, BIASES, &[check("no_rope_layers", other_layers_rotated)]],
    tied: true,
    rope_theta: 2_000_000.0,
    permuted: true,
    ..Checkpoint::DECODER
};

/// Returns the error for a list of rotated (1) and unrotated (0) layers that is not the supported
/// one.
fn other_layers_rotated(layers: &Json) -> Option<String> {
    let rotated = |index: usize| !(index + 1).is_multiple_of(PERIOD);
    let mut layers = layers.as_array()?.iter().enumerate();
    let (index, layer) = layers.find(|(index, layer)| **layer != u64::from(rotated(*index)))?;
    Some(format!(
        "has {layer} for layer {index}, but only 0 in the last of each {PERIOD} layers and 1 in all other layers is \
         supported"
    ))
}

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.layers.iter_mut().skip(PERIOD - 1).step_by(PERIOD).for_each(|layer| layer.rope = None);
    BLOCK.model(config, graph)
}
