//! Phi-3 and Phi-4 ([Abdin et al. 2024](https://arxiv.org/abs/2404.14219)): pre-norm blocks, grouped-query attention and a
//! SwiGLU feed-forward, with the matrices of queries, keys and values, and those of gate and up, in one each.
//!
//! The first of them see a window, which transformers applies in every layer and llama.cpp does not.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{FULL_ATTENTION, Need, SILU, SIZES, TENSORS, float, size, tensor},
    keys::{Keys, MAX_CONTEXT},
    wiring::Wiring,
};
use crate::{
    Result,
    graph::{Activation, RopeStyle},
};

const BLOCK: Block =
    Block { style: RopeStyle::Halves, head_norms: false, post_norms: false, activation: Activation::Silu };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["phi3"],
    config: &[
        &[
            float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-5)),
            size("sliding_window", "attention.sliding_window", Need::Optional),
        ],
        SIZES,
        SILU,
        FULL_ATTENTION,
    ],
    tensors: &[&[tensor("self_attn.qkv_proj", "attn_qkv"), tensor("mlp.gate_up_proj", "ffn_up")], TENSORS],
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = Config::read(keys)?;
    // Files of models without a window say 0.
    let window = Some(keys.count("attention.sliding_window", MAX_CONTEXT)?).filter(|window| *window > 0);
    config.layers.iter_mut().for_each(|layer| layer.scores.window = window);
    BLOCK.model(config, wiring)
}
