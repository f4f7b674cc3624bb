//! Phi-3 and Phi-4 ([Abdin et al. 2024](https://arxiv.org/abs/2404.14219)): pre-norm blocks, grouped-query attention and a
//! SwiGLU feed-forward, with the matrices of queries, keys and values, and those of gate and up, in one each.
//!
//! The first of them see a window, which transformers applies in every layer and llama.cpp does not.
//!
//! Those for longer contexts divide frequencies by factors of LongRoPE ([Ding et al. 2024](https://arxiv.org/abs/2402.13753)):
//! some for the context that the model had before, others for all of a longer one. As in llama.cpp the context that a runner
//! is made for decides. transformers goes by the text's length, so that keys that were cached before it outgrew the shorter
//! context no longer fit those that follow.

use super::{
    Checkpoint, Config, Model, RopeConfig,
    block::Block,
    checkpoint::{FULL_ATTENTION, Need, SILU, SIZES, TENSORS, float, size, tensor},
    keys::{Keys, MAX_CONTEXT},
    rope::{LONG, SHORT},
    wiring::Wiring,
};
use crate::{
    Error, Result,
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
    partial_rotary_factor: Some(1.0),
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = Config::read(keys)?;
    // Files of models without a window say 0.
    let window = Some(keys.count("attention.sliding_window", MAX_CONTEXT)?).filter(|window| *window > 0);
    config.layers.iter_mut().for_each(|layer| layer.scores.window = window);
    if [SHORT, LONG].iter().any(|name| wiring.has(name)) {
        stretch(&mut config, keys, &wiring)?;
    }
    BLOCK.model(config, wiring)
}

/// Takes the factors for the positions that there may be.
fn stretch(config: &mut Config, keys: &Keys, wiring: &Wiring) -> Result<()> {
    const ORIGINAL: &str = "rope.scaling.original_context_length";
    let original = keys.optional_size(ORIGINAL, MAX_CONTEXT)?.unwrap_or(config.context_length);
    let is_long = config.context_length.min(keys.positions) > original;
    let (taken, other) = if is_long { (LONG, SHORT) } else { (SHORT, LONG) };
    if !wiring.has(taken) {
        return Err(Error::tensor(taken, format!("is missing, but `{other}` is there")));
    }
    for layer in &mut config.layers {
        layer.rope = layer.rope.map(|rope| RopeConfig { divisors: Some(taken), ..rope });
    }
    config.left_out.push(other.into());
    Ok(())
}
