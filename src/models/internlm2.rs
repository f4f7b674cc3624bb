//! InternLM2 and 2.5 ([Cai et al. 2024](https://arxiv.org/abs/2403.17297)): Llama.

use super::{Config, Model, keys::Keys, llama::BLOCK, model_builder::ModelBuilder};
use crate::Result;

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read(keys)?, graph)
}
