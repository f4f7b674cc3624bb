//! OLMo 2 and 3 ([OLMo Team 2024](https://arxiv.org/abs/2501.00656)): no norms before attention and
//! the feed-forward network but one after each, and norms of queries and keys over all heads. In
//! OLMo 3 three of four layers have a sliding window, and only the others stretch frequencies.

use super::{
    Checkpoint, Config, Model, RopeConfig,
    block::{Block, FeedForwardInput, HeadNorms},
    checkpoint::{BIASES, FULL_ATTENTION, Need, SILU, SIZES, TENSORS, float, tensor},
    keys::{Keys, MAX_CONTEXT},
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block {
    attention_norm: false,
    head_norms: HeadNorms::Together,
    feed_forward_input: FeedForwardInput::Stream,
    post_norms: true,
    ..Block::DECODER
};
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 4;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["olmo2"],
    settings: &[
        &[float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-5))],
        SIZES,
        SILU,
        FULL_ATTENTION,
        BIASES,
    ],
    tensors: &[
        &[
            tensor("post_attention_layernorm", "post_attention_norm"),
            tensor("post_feedforward_layernorm", "post_ffw_norm"),
        ],
        TENSORS,
    ],
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    let window = keys.count("attention.sliding_window", MAX_CONTEXT)?;
    if window > 0 {
        config.set_windows(keys, window, PERIOD)?;
        for layer in config.layers.iter_mut().filter(|layer| layer.scores.window.is_some()) {
            let base = layer.rope.map_or(10_000.0, |rope| rope.base);
            layer.rope = Some(RopeConfig::read_sliding(keys, layer.head_dim, base)?);
        }
    }
    BLOCK.model(config, graph)
}
