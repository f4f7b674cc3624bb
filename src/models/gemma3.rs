//! Gemma 3 ([Gemma Team 2025](https://arxiv.org/abs/2503.19786)), text: Gemma 2 with norms of queries and keys in the
//! place of the scores' cap, and five layers with a window for each that sees all positions, whose heads turn more slowly.

use super::{
    Checkpoint, Model, RopeConfig,
    block::Block,
    checkpoint::{BIASES, Means, Need, SIZES, TENSORS, key, less_one, only, size},
    gemma, gemma2,
    keys::Keys,
    wiring::Wiring,
};
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

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["gemma3_text"],
    config: &[
        gemma2::WINDOWS,
        &[
            // Configs of models that also see leave out what is usual.
            size("num_attention_heads", "attention.head_count", Need::Or(8)),
            size("num_key_value_heads", "attention.head_count_kv", Need::Or(4)),
            size("max_position_embeddings", "context_length", Need::Or(131_072)),
            size("sliding_window_pattern", "attention.sliding_window_pattern", Need::Optional),
            only("attn_logit_softcapping", &["null"]),
            key("final_logit_softcapping", Means::Cap("final_logit_softcapping", 0.0)),
        ],
        gemma::SETTINGS,
        SIZES,
        BIASES,
    ],
    tensors: &[
        &[less_one("self_attn.q_norm", "attn_q_norm"), less_one("self_attn.k_norm", "attn_k_norm")],
        gemma2::NORMS,
        gemma::NORMS,
        TENSORS,
    ],
    tied: true,
    rope_theta: 1_000_000.0,
    rope_theta_of_windows: Some(BASE),
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = gemma::config(keys)?;
    if let Some(window) = keys.window()? {
        config.slide(keys, window, PERIOD)?;
        for layer in config.layers.iter_mut().filter(|layer| layer.scores.window.is_some()) {
            layer.rope = Some(RopeConfig::read_sliding(keys, layer.head_dim, BASE)?);
        }
    }
    gemma2::scale_scores(&mut config, keys, LAYERS_OF_27B)?;
    config.logit_softcap = keys.factor("final_logit_softcapping", None)?;
    BLOCK.model(config, wiring)
}
