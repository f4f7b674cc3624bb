//! Phi-3 and Phi-4 ([Abdin et al. 2024](https://arxiv.org/abs/2404.14219)): pre-norm blocks,
//! grouped-query attention and a SwiGLU feed-forward network. The matrices of queries, keys and
//! values are joined in one tensor, and so are the matrices of gate and up.
//!
//! The first Phi-3 models have a sliding window. As in transformers it applies to every layer;
//! llama.cpp ignores it.
//!
//! Models for long contexts divide the frequencies by factors of LongRoPE ([Ding et al.
//! 2024](https://arxiv.org/abs/2402.13753)): by one set if sequences stay within the original
//! context, and by another set if they may be longer. As in llama.cpp, the context length of the
//! runner decides. transformers decides by the current length of the text, which makes keys cached
//! with the first set inconsistent with keys of the second set.

use super::{
    Checkpoint, Config, Model, RopeConfig,
    block::Block,
    checkpoint::{FULL_ATTENTION, Need, SILU, SIZES, TENSORS, float, size, tensor},
    keys::{Keys, MAX_CONTEXT},
    model_builder::ModelBuilder,
    rope::{LONG, SHORT},
};
use crate::{Error, Result, graph::Window};

const BLOCK: Block = Block::DECODER;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["phi3"],
    settings: &[
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

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    // Files of models without a window have the value 0.
    let window = Some(keys.count("attention.sliding_window", MAX_CONTEXT)?).filter(|window| *window > 0);
    config.layers.iter_mut().for_each(|layer| layer.scores.window = window.map(Window::Sliding));
    if [SHORT, LONG].iter().any(|name| graph.has(name)) {
        set_longrope(&mut config, keys, &graph)?;
    }
    BLOCK.model(config, graph)
}

/// Divides the frequencies by LongRoPE's factors for the length that sequences may have.
fn set_longrope(config: &mut Config, keys: &Keys, graph: &ModelBuilder) -> Result<()> {
    const ORIGINAL: &str = "rope.scaling.original_context_length";
    let original = keys.optional_size(ORIGINAL, MAX_CONTEXT)?.unwrap_or(config.context_length);
    let is_long = config.context_length.min(keys.positions) > original;
    let (used, unused) = if is_long { (LONG, SHORT) } else { (SHORT, LONG) };
    if !graph.has(used) {
        return Err(Error::tensor(used, format!("is missing from the file, which has `{unused}`")));
    }
    for layer in &mut config.layers {
        layer.rope = layer.rope.map(|rope| RopeConfig { divisors: Some(used), ..rope });
    }
    config.left_out.push(unused.into());
    Ok(())
}
