//! GLM-4.5 and later ([GLM Team 2025](https://arxiv.org/abs/2508.06471)): partly rotated heads with
//! norms in some models, and after the first layers experts that a sigmoid selects, in groups and
//! with a bias ([DeepSeek-AI 2024](https://arxiv.org/abs/2412.19437)), beside a shared one.

use super::{
    Config, Model,
    block::{Block, FeedForwardInput, HeadNorms},
    experts::{Choice, Mixture, shared_count},
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block {
    head_norms: HeadNorms::IfThere,
    feed_forward_input: FeedForwardInput::Norm("post_attention_norm"),
    ..Block::DECODER
};

const MIXTURE: Mixture = Mixture {
    normalized: Choice::Unless(false),
    grouped: true,
    shared: |keys, _, ffn| shared_count(keys, ffn),
    ..Mixture::SIGMOID
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.split_mtp(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    config.leave_dense(keys)?;
    BLOCK.model(config, graph)
}
