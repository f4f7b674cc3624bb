//! Falcon-H1 ([Falcon Team 2025](https://arxiv.org/abs/2507.22448)): every layer is attention and a
//! Mamba-2 side by side, over the same norm, then a feed-forward network. The multipliers of the
//! published models are part of their matrices in files.

use super::{Config, Model, block::Block, keys::Keys, mamba::Mamba, model_builder::ModelBuilder};
use crate::Result;

const BLOCK: Block = Block::DECODER;

pub(super) fn build(keys: &Keys, mut graph: ModelBuilder) -> Result<Model> {
    let config = Config::read(keys)?;
    let mamba = Mamba::read(keys)?.with_optional_norm();
    let mut x = graph.embedding(&config)?;
    for (index, layer) in config.layers.iter().enumerate() {
        let normed = graph.norm(x, &format!("blk.{index}.attn_norm"), &config)?;
        let attended = BLOCK.attention(&config, layer, &mut graph, normed, index)?;
        let scanned = mamba.layer(&mut graph, &config, normed, index)?;
        let both = graph.ops.add(attended, scanned);
        x = graph.ops.add(x, both);
        // The name of this norm has no suffix.
        let weight = graph.weight(&format!("blk.{index}.ffn_norm"), 1, config.hidden)?;
        let normed = graph.ops.rms_norm(x, weight, config.rms_eps);
        let output = graph.feed_forward(normed, &format!("blk.{index}.ffn"), BLOCK.network(&config, layer))?;
        x = graph.ops.add(x, output);
    }
    graph.finish(config, x)
}
