//! Command R and Command R+ ([Cohere 2024](https://docs.cohere.com/docs/command-r)): attention and
//! the feed-forward network read the same layer norm, without a bias, and both are added. The
//! largest models norm each head of queries and keys.

use super::{
    Checkpoint, Config, Model,
    block::{Block, FeedForwardInput, HeadNorms},
    checkpoint::{BIASES, FULL_ATTENTION, Need, SILU, SIZES, float},
    config::{Conventions, NormKind},
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::RopeStyle};

pub(super) const BLOCK: Block = Block {
    style: RopeStyle::Adjacent,
    head_norms: HeadNorms::Own,
    feed_forward_input: FeedForwardInput::Shared,
    ..Block::DECODER
};

pub(super) const LAYER_NORM: Conventions = Conventions { norm: NormKind::Layer, ..Conventions::COMMON };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["cohere"],
    settings: &[
        &[
            float("layer_norm_eps", "attention.layer_norm_epsilon", Need::Or(1e-5)),
            float("logit_scale", "logit_scale", Need::Or(0.0625)),
        ],
        SIZES,
        SILU,
        FULL_ATTENTION,
        BIASES,
    ],
    tied: true,
    rope_theta: 500_000.0,
    derived: |settings, tensors| {
        settings.check_tensor("use_qk_norm", true, tensors, "attn_q_norm")?;
        Ok(vec![])
    },
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(config(keys)?, graph)
}

/// Reads the config that Command R shares with later families.
pub(super) fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read_as(keys, &LAYER_NORM)?;
    config.logit_scale = keys.factor("logit_scale", None)?.unwrap_or(1.0);
    Ok(config)
}
