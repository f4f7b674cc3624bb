//! Gemma 2 ([Gemma Team 2024](https://arxiv.org/abs/2408.00118)): Gemma with a second norm on what attention and
//! feed-forward come to, with caps on the scores and on the logits, and with a window for every other layer.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{BIASES, Key, Means, Need, SIZES, TENSORS, Tensor, key, less_one, size},
    gemma,
    keys::Keys,
    wiring::Wiring,
};
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

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["gemma2"],
    config: &[
        WINDOWS,
        &[
            key("attn_logit_softcapping", Means::Cap("attn_logit_softcapping", 50.0)),
            key("final_logit_softcapping", Means::Cap("final_logit_softcapping", 30.0)),
        ],
        gemma::SETTINGS,
        SIZES,
        BIASES,
    ],
    tensors: &[NORMS, gemma::NORMS, TENSORS],
    tied: true,
    ..Checkpoint::DECODER
};

/// What the checkpoints of Gemma 2 and 3 have in common.
pub(super) const WINDOWS: &[Key] = &[
    size("sliding_window", "attention.sliding_window", Need::Or(4096)),
    key("layer_types", Means::Kinds("attention.sliding_window_pattern", "sliding_attention")),
    key("query_pre_attn_scalar", Means::InverseRoot("attention.scale", 256.0)),
];
pub(super) const NORMS: &[Tensor] = &[
    less_one("post_attention_layernorm", "post_attention_norm"),
    less_one("pre_feedforward_layernorm", "ffn_norm"),
    less_one("post_feedforward_layernorm", "post_ffw_norm"),
];

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = gemma::config(keys)?;
    config.slide(keys, keys.window()?.unwrap_or(WINDOW), PERIOD)?;
    scale_scores(&mut config, keys, LAYERS_OF_27B)?;
    let softcap = keys.factor("attn_logit_softcapping", Some(50.0))?;
    config.layers.iter_mut().for_each(|layer| layer.scores.softcap = softcap);
    config.logit_softcap = keys.factor("final_logit_softcapping", Some(30.0))?;
    BLOCK.model(config, wiring)
}

/// Scales scores as `attention.scale` says. GGUF files are without it: the largest Gemma 2 and 3, known by their `layers`,
/// do it as if a head were the width over the heads.
pub(super) fn scale_scores(config: &mut Config, keys: &Keys, layers: usize) -> Result<()> {
    let asked = keys.factor("attention.scale", None)?;
    let largest = config.layers.len() == layers;
    for layer in &mut config.layers {
        let usual = if largest { ((config.hidden / layer.heads) as f32).sqrt().recip() } else { layer.scores.scale };
        layer.scores.scale = asked.unwrap_or(usual);
    }
    Ok(())
}
