//! Command R7B and Command A ([Cohere 2025](https://arxiv.org/abs/2504.00698)): Command R with a
//! sliding window in three of four layers, and no rotation in the others.

use super::{
    Model,
    block::{Block, HeadNorms},
    command_r,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block { head_norms: HeadNorms::None, ..command_r::BLOCK };
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 4;

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = command_r::config(keys)?;
    config.divide_frequencies();
    let window = keys.required("attention.sliding_window", keys.window()?)?;
    config.set_windows(keys, window, PERIOD)?;
    config.layers.iter_mut().for_each(|layer| layer.rope = layer.rope.filter(|_| layer.scores.window.is_some()));
    BLOCK.model(config, graph)
}
