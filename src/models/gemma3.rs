//! Gemma 3 ([Gemma Team 2025](https://arxiv.org/abs/2503.19786)), text: Gemma 2 with norms of
//! queries and keys instead of the cap on the scores, and full attention in every sixth layer only.
//! Layers with a sliding window have a lower base of rotary embedding.

use super::{
    Checkpoint, Model, RopeConfig,
    block::{Block, HeadNorms},
    checkpoint::{BIASES, Meaning, Need, SIZES, TENSORS, Transform, one_of, setting, size, transformed},
    gemma, gemma2,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::Activation};

const BLOCK: Block =
    Block { head_norms: HeadNorms::Each, post_norms: true, activation: Activation::Gelu, ..Block::DECODER };
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 6;
/// The default base of rotary embedding in layers with a sliding window.
pub(super) const SLIDING_BASE: f32 = 10_000.0;
/// The number of layers of the model with 27 billion parameters.
const LAYERS_OF_27B: usize = 62;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["gemma3_text"],
    settings: &[
        gemma2::WINDOWS,
        &[
            // Configs of the multimodal models leave out settings with their default value.
            size("num_attention_heads", "attention.head_count", Need::Or(8)),
            size("num_key_value_heads", "attention.head_count_kv", Need::Or(4)),
            size("max_position_embeddings", "context_length", Need::Or(131_072)),
            size("sliding_window_pattern", "attention.sliding_window_pattern", Need::Optional),
            one_of("attn_logit_softcapping", &["null"]),
            setting("final_logit_softcapping", Meaning::Cap("final_logit_softcapping", 0.0)),
        ],
        gemma::SETTINGS,
        SIZES,
        BIASES,
    ],
    tensors: &[
        &[
            transformed("self_attn.q_norm", "attn_q_norm", Transform::AddOne),
            transformed("self_attn.k_norm", "attn_k_norm", Transform::AddOne),
        ],
        gemma2::NORMS,
        gemma::NORMS,
        TENSORS,
    ],
    tied: true,
    rope_theta: 1_000_000.0,
    sliding_rope_theta: Some(SLIDING_BASE),
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = gemma::config(keys)?;
    if let Some(window) = keys.window()? {
        config.set_windows(keys, window, PERIOD)?;
        for layer in config.layers.iter_mut().filter(|layer| layer.scores.window.is_some()) {
            layer.rope = Some(RopeConfig::read_sliding(keys, layer.head_dim, SLIDING_BASE)?);
        }
    }
    gemma2::set_score_scale(&mut config, keys, LAYERS_OF_27B)?;
    config.logit_softcap = keys.factor("final_logit_softcapping", None)?;
    config.see_images_whole(keys, |_| true);
    BLOCK.model(config, graph)
}
