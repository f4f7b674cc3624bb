//! Arcee AFM ([Arcee 2025](https://huggingface.co/arcee-ai/AFM-4.5B)):
//! Llama with a feed-forward network of squared ReLU without a gate
//! ([So et al. 2021](https://arxiv.org/abs/2109.08668)).

use super::{Config, Model, block::Block, keys::Keys, llama, model_builder::ModelBuilder};
use crate::{Result, graph::Activation};

const BLOCK: Block = Block { activation: Activation::SquaredRelu, gated: false, ..llama::BLOCK };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.divide_frequencies();
    BLOCK.model(config, graph)
}
