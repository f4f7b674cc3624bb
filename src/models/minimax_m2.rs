//! MiniMax-M2 ([MiniMax 2025](https://www.minimax.io/news/minimax-m2)): norms of queries and keys
//! over all heads, partly rotated heads, and experts that a sigmoid selects with a bias.

use super::{
    Config, Model,
    block::{Block, HeadNorms},
    experts::Mixture,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block { head_norms: HeadNorms::Together, ..Block::DECODER };

const MIXTURE: Mixture = Mixture { has_width: false, ..Mixture::SIGMOID };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    BLOCK.model(config, graph)
}
