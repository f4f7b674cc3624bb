//! Gemma 2 ([Gemma Team 2024](https://arxiv.org/abs/2408.00118)): Gemma with a second norm on what attention and
//! feed-forward come to, with caps on the scores and on the logits, and with a window for every other layer.

use super::{Config, Model, block::Block, gemma, keys::Keys, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, RopeStyle},
};

const BLOCK: Block =
    Block { style: RopeStyle::Halves, head_norms: false, post_norms: true, activation: Activation::Gelu };
/// One in so many layers, the last of each, sees all positions.
const PERIOD: usize = 2;
/// The window of all models that have been released; files made early do not say it, nor the caps.
const WINDOW: usize = 4096;
/// The model of 27 billion parameters, by its layers, scales scores by its width over its heads.
const LAYERS_OF_27B: usize = 46;

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = gemma::config(keys)?;
    config.slide(keys, keys.window()?.unwrap_or(WINDOW), PERIOD)?;
    scale_scores_of(&mut config, LAYERS_OF_27B);
    let softcap = keys.factor("attn_logit_softcapping", Some(50.0))?;
    config.layers.iter_mut().for_each(|layer| layer.scores.softcap = softcap);
    config.logit_softcap = keys.factor("final_logit_softcapping", Some(30.0))?;
    BLOCK.model(config, wiring)
}

/// The largest Gemma 2 and 3, known by their layers, scale scores as if a head were the width over the heads.
pub(super) fn scale_scores_of(config: &mut Config, layers: usize) {
    if config.layers.len() == layers {
        for layer in &mut config.layers {
            layer.scores.scale = ((config.hidden / layer.heads) as f32).sqrt().recip();
        }
    }
}
