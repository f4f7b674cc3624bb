//! LFM2 ([Liquid AI 2025](https://arxiv.org/abs/2511.23404)), dense and with experts: most layers
//! are short convolutions between two gates, and the others attention with norms of the heads of
//! queries and keys. Experts are selected by a sigmoid with a bias.

use super::{
    Config, Model,
    block::{Block, HeadNorms},
    config::Conventions,
    experts::Mixture,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{
    Result,
    graph::{RECURRENT_UNIT, ValueId},
};

const BLOCK: Block = Block { head_norms: HeadNorms::Each, ..Block::DECODER };
/// The largest kernel that is accepted, in tokens.
const MAX_KERNEL: usize = 1 << 6;
const KERNEL: &str = "shortconv.l_cache";

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    model(keys, config(keys)?, graph)
}

pub(super) fn build_moe(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys)?;
    config.require_experts(keys, &Mixture::SIGMOID)?;
    config.leave_dense(keys)?;
    model(keys, config, graph)
}

fn config(keys: &Keys) -> Result<Config> {
    let config = Config::read_as(keys, &Conventions { has_other_layers: true, ..Conventions::COMMON })?;
    if !config.hidden.is_multiple_of(RECURRENT_UNIT) {
        let what = format!("is {}, but must be a multiple of {RECURRENT_UNIT}", config.hidden);
        return Err(keys.error("embedding_length", what));
    }
    Ok(config)
}

fn model(keys: &Keys, config: Config, mut graph: ModelBuilder) -> Result<Model> {
    let kernel = keys.size(KERNEL, MAX_KERNEL)?;
    if kernel == 1 {
        return Err(keys.error(KERNEL, "is 1, but must be at least 2"));
    }
    let mut x = graph.embedding(&config)?;
    for (index, layer) in config.layers.iter().enumerate() {
        let normed = graph.norm(x, &format!("blk.{index}.attn_norm"), &config)?;
        let output = match layer.kv_heads {
            0 => convolution(&mut graph, normed, config.hidden, kernel, index)?,
            _ => BLOCK.attention(&config, layer, &mut graph, normed, index)?,
        };
        x = graph.ops.add(x, output);
        x = BLOCK.feed_forward(&config, layer, &mut graph, x, index)?;
    }
    graph.finish(config, x)
}

/// Returns a short convolution over the normed rows `x`, between two gates.
fn convolution(graph: &mut ModelBuilder, x: ValueId, hidden: usize, kernel: usize, index: usize) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.shortconv.{part}");
    let parts = graph.linear(x, &name("in_proj"), 3 * hidden, hidden)?;
    let [before, after, x] = [0, 1, 2].map(|part| graph.ops.slice(parts, part * hidden, hidden, 3 * hidden));
    let gated = graph.ops.mul(before, x);
    let taps = graph.weight(&name("conv.weight"), hidden, kernel)?;
    let convolved = graph.ops.linear_conv(gated, taps);
    let gated = graph.ops.mul(after, convolved);
    graph.linear(gated, &name("out_proj"), hidden, hidden)
}
