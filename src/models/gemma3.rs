//! Gemma 3 ([Gemma Team 2025](https://arxiv.org/abs/2503.19786)), text: Gemma 2 with norms of queries and keys in the
//! place of the scores' cap, and five layers with a window for each that sees all positions, whose heads turn more slowly.

use super::{Model, RopeConfig, block::Block, gemma, gemma2, keys::Keys, wiring::Wiring};
use crate::{
    Result,
    graph::{Activation, RopeStyle},
};

const BLOCK: Block =
    Block { style: RopeStyle::Halves, head_norms: true, post_norms: true, activation: Activation::Gelu };
/// One in so many layers, the last of each, sees all positions.
const PERIOD: usize = 6;
/// What the heads of layers with a window turn by, unless the file says otherwise.
pub(super) const BASE: f32 = 10_000.0;
/// As in Gemma 2.
const LAYERS_OF_27B: usize = 62;

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = gemma::config(keys)?;
    if let Some(window) = keys.window()? {
        config.slide(keys, window, PERIOD)?;
        for layer in config.layers.iter_mut().filter(|layer| layer.scores.window.is_some()) {
            layer.rope = Some(RopeConfig::read_sliding(keys, layer.head_dim, BASE)?);
        }
    }
    gemma2::scale_scores_of(&mut config, LAYERS_OF_27B);
    config.logit_softcap = keys.factor("final_logit_softcapping", None)?;
    BLOCK.model(config, wiring)
}
