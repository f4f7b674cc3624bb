//! gpt-oss ([OpenAI 2025](https://arxiv.org/abs/2508.10925)): attention with sinks, a sliding
//! window in every other layer, and experts with biases and clamped gated linear units.

use super::{
    Config, Model,
    block::{Block, FeedForwardInput},
    experts::Mixture,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block =
    Block { sinks: true, feed_forward_input: FeedForwardInput::Norm("post_attention_norm"), ..Block::DECODER };
const MIXTURE: Mixture = Mixture { clamped: true, ..Mixture::SOFTMAX };
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 2;

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    let window = keys.required("attention.sliding_window", keys.window()?)?;
    config.set_windows(keys, window, PERIOD)?;
    config.require_experts(keys, &MIXTURE)?;
    BLOCK.model(config, graph)
}
