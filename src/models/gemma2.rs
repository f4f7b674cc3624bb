//! Gemma 2 ([Gemma Team 2024](https://arxiv.org/abs/2408.00118)): Gemma 1 with a second norm after
//! attention and after the feed-forward network, caps on the scores and on the logits, and a
//! sliding window in every other layer.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{
        BIASES, Meaning, Need, SIZES, Setting, TENSORS, TensorMapping, Transform, setting, size, transformed,
    },
    gemma,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::Activation};

const BLOCK: Block = Block { post_norms: true, activation: Activation::Gelu, ..Block::DECODER };
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 2;
/// The window of all released models, in positions. Early files have no key for it, nor for the
/// caps.
const WINDOW: usize = 4096;
/// The number of layers of the model with 27 billion parameters.
const LAYERS_OF_27B: usize = 46;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["gemma2"],
    settings: &[
        WINDOWS,
        &[
            setting("attn_logit_softcapping", Meaning::Cap("attn_logit_softcapping", 50.0)),
            setting("final_logit_softcapping", Meaning::Cap("final_logit_softcapping", 30.0)),
        ],
        gemma::SETTINGS,
        SIZES,
        BIASES,
    ],
    tensors: &[NORMS, gemma::NORMS, TENSORS],
    tied: true,
    ..Checkpoint::DECODER
};

/// The settings that the checkpoints of Gemma 2 and 3 share.
pub(super) const WINDOWS: &[Setting] = &[
    size("sliding_window", "attention.sliding_window", Need::Or(4096)),
    setting("layer_types", Meaning::Kinds("attention.sliding_window_pattern", "sliding_attention")),
    setting("query_pre_attn_scalar", Meaning::InverseRoot("attention.scale", 256.0)),
];
/// The norms that the checkpoints of Gemma 2 and 3 share.
pub(super) const NORMS: &[TensorMapping] = &[
    transformed("post_attention_layernorm", "post_attention_norm", Transform::AddOne),
    transformed("pre_feedforward_layernorm", "ffn_norm", Transform::AddOne),
    transformed("post_feedforward_layernorm", "post_ffw_norm", Transform::AddOne),
];

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = gemma::config(keys)?;
    config.set_windows(keys, keys.window()?.unwrap_or(WINDOW), PERIOD)?;
    set_score_scale(&mut config, keys, LAYERS_OF_27B)?;
    let softcap = keys.factor("attn_logit_softcapping", Some(50.0))?;
    config.layers.iter_mut().for_each(|layer| layer.scores.softcap = softcap);
    config.logit_softcap = keys.factor("final_logit_softcapping", Some(30.0))?;
    BLOCK.model(config, graph)
}

/// Sets the scale of the scores to `attention.scale`. GGUF files have no such key: the largest
/// models of Gemma 2 and 3, recognized by their number of layers, `layers_of_27b`, use the scale of
/// heads of `hidden / heads` elements.
pub(super) fn set_score_scale(config: &mut Config, keys: &Keys, layers_of_27b: usize) -> Result<()> {
    let scale = keys.factor("attention.scale", None)?;
    let is_largest = config.layers.len() == layers_of_27b;
    for layer in &mut config.layers {
        let default =
            if is_largest { ((config.hidden / layer.heads) as f32).sqrt().recip() } else { layer.scores.scale };
        layer.scores.scale = scale.unwrap_or(default);
    }
    Ok(())
}
