//! Ministral 3 ([Mistral AI 2025](https://mistral.ai/news/mistral-3)): Llama whose queries grow
//! with their position.

use super::{
    Config, Model,
    block::Block,
    config::{Conventions, Temperature},
    keys::{Keys, MAX_CONTEXT},
    llama,
    model_builder::ModelBuilder,
};
use crate::Result;

const CONVENTIONS: Conventions = Conventions { has_yarn_keys: true, ..Conventions::COMMON };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    const ORIGINAL: &str = "rope.scaling.original_context_length";
    let mut config = Config::read_as(keys, &CONVENTIONS)?;
    config.divide_frequencies();
    if let Some(scale) = keys.factor("attention.temperature_scale", None)? {
        let interval = keys.optional_size(ORIGINAL, MAX_CONTEXT)?.unwrap_or(config.context_length);
        let temperature = Temperature { scale, interval, offset: 0 };
        config.layers.iter_mut().for_each(|layer| layer.temperature = Some(temperature));
    }
    BLOCK.model(config, graph)
}

const BLOCK: Block = llama::BLOCK;
