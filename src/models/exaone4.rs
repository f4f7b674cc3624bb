//! EXAONE 4 ([LG AI Research 2025](https://arxiv.org/abs/2507.11407)): no norms before attention
//! and the feed-forward network but one after each, and norms of the heads of queries and keys. In
//! the large model three of four layers have a sliding window, and the others are not rotated.

use super::{
    Config, Model,
    block::{Block, FeedForwardInput, HeadNorms},
    config::PATTERN,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block {
    attention_norm: false,
    head_norms: HeadNorms::Each,
    feed_forward_input: FeedForwardInput::Stream,
    post_norms: true,
    ..Block::DECODER
};
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 4;
/// The number of layers of the large model, which alone has windows, and its window.
const LAYERS: usize = 64;
const WINDOW: usize = 4096;

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.split_mtp(keys)?;
    config.divide_frequencies();
    if config.layers.len() == LAYERS || keys.has(PATTERN) {
        config.set_windows(keys, keys.window()?.unwrap_or(WINDOW), PERIOD)?;
        config.layers.iter_mut().for_each(|layer| layer.rope = layer.rope.filter(|_| layer.scores.window.is_some()));
    }
    BLOCK.model(config, graph)
}
