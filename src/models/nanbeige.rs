//! Nanbeige ([Nanbeige LLM Lab 2025](https://arxiv.org/abs/2512.06266)): Llama. Some models run all
//! layers several times, with a norm in between ([Dehghani et al.
//! 2018](https://arxiv.org/abs/1807.03819)).

use super::{Config, Model, config::MAX_LAYERS, keys::Keys, llama::BLOCK, model_builder::ModelBuilder};
use crate::Result;

pub(super) fn build(keys: &Keys, mut graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.divide_frequencies();
    let loops = keys.optional_size("num_loops", MAX_LAYERS / config.layers.len())?.unwrap_or(1);
    let skips_norm = keys.bool("skip_loop_final_norm")?.unwrap_or(false);
    let mut x = graph.embedding(&config)?;
    for number in 0..loops {
        if number > 0 && !skips_norm {
            x = graph.norm(x, "output_norm", &config)?;
        }
        x = BLOCK.layers(&mut graph, &config, x)?;
    }
    graph.finish(config, x)
}
