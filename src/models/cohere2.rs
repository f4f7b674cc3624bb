//! Command R7B and Command A ([Cohere 2025](https://arxiv.org/abs/2504.00698)): Command R with a
//! sliding window in three of four layers, and no rotation in the others.

use super::{
    Checkpoint, Model,
    block::{Block, HeadNorms},
    checkpoint::{BIASES, Meaning, Need, SILU, SIZES, float, setting, size},
    command_r,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block { head_norms: HeadNorms::None, ..command_r::BLOCK };
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 4;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["cohere2"],
    settings: &[
        &[
            float("layer_norm_eps", "attention.layer_norm_epsilon", Need::Or(1e-5)),
            float("logit_scale", "logit_scale", Need::Or(0.0625)),
            size("sliding_window", "attention.sliding_window", Need::Or(4096)),
            setting("layer_types", Meaning::Kinds("attention.sliding_window_pattern", "sliding_attention")),
            size("sliding_window_pattern", "attention.sliding_window_pattern", Need::Optional),
        ],
        SIZES,
        SILU,
        BIASES,
    ],
    tied: true,
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = command_r::config(keys)?;
    config.divide_frequencies();
    let window = keys.required("attention.sliding_window", keys.window()?)?;
    config.set_windows(keys, window, PERIOD)?;
    config.layers.iter_mut().for_each(|layer| layer.rope = layer.rope.filter(|_| layer.scores.window.is_some()));
    BLOCK.model(config, graph)
}
