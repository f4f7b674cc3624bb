//! Muse Glimmer: normed embeddings, gated attention, norms before and after each branch, and a
//! sliding window in three of four layers, which alone are rotated.

use super::{
    Config, Model, RopeConfig,
    block::{Block, HeadNorms},
    keys::Keys,
    llama,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block {
    head_norms: HeadNorms::Each,
    output_gate: true,
    post_norms: true,
    post_norm_eps: Some(1e-8),
    ..llama::BLOCK
};
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 4;
/// The cap of the logits in files that do not say it.
const LOGIT_CAP: f32 = 30.0;

pub(super) fn build(keys: &Keys, mut graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    let window = keys.required("attention.sliding_window", keys.window()?)?;
    config.set_windows(keys, window, PERIOD)?;
    for layer in &mut config.layers {
        let base = layer.rope.filter(|_| layer.scores.window.is_some()).map(|rope| rope.base);
        layer.rope = base.map(|base| RopeConfig::read_sliding(keys, layer.head_dim, base)).transpose()?;
    }
    config.logit_scale = keys.float("logit_scale", f32::MIN_POSITIVE..f32::MAX, None)?;
    config.logit_softcap = keys.factor("final_logit_softcapping", Some(LOGIT_CAP))?;
    let x = graph.embedding(&config)?;
    let x = graph.unweighted_norm(x, config.hidden, config.rms_eps);
    let x = BLOCK.layers(&mut graph, &config, x)?;
    graph.finish(config, x)
}
