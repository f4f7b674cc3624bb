//! Arcee AFM ([Arcee 2025](https://huggingface.co/arcee-ai/AFM-4.5B)):
//! Llama with a feed-forward network of squared ReLU without a gate
//! ([So et al. 2021](https://arxiv.org/abs/2109.08668)).

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{BIASES, FULL_ATTENTION, Need, SIZES, float, one_of},
    keys::Keys,
    llama,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::Activation};

const BLOCK: Block = Block { activation: Activation::SquaredRelu, gated: false, ..llama::BLOCK };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["arcee"],
    settings: &[
        &[float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-5)), one_of("hidden_act", &["relu2"])],
        SIZES,
        FULL_ATTENTION,
        BIASES,
    ],
    permuted: true,
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.divide_frequencies();
    BLOCK.model(config, graph)
}
