//! Gemma 1 ([Gemma Team 2024](https://arxiv.org/abs/2403.08295)): embeddings scaled by the root of
//! their width, pre-norm blocks, wide heads with few key-value heads, and a feed-forward network
//! gated by GELU. Checkpoints store norm weights minus 1; GGUF files store the weights.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{BIASES, Need, SIZES, Setting, TENSORS, TensorMapping, Transform, one_of, size, transformed},
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::Activation};

const BLOCK: Block = Block { activation: Activation::Gelu, ..Block::DECODER };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["gemma"],
    // Early configs say `gelu` where the models use its approximation.
    settings: &[&[one_of("hidden_act", &["gelu_pytorch_tanh", "gelu"])], SETTINGS, SIZES, BIASES],
    tensors: &[&[transformed("post_attention_layernorm", "ffn_norm", Transform::AddOne)], NORMS, TENSORS],
    tied: true,
    ..Checkpoint::DECODER
};

/// The settings that the checkpoints of Gemma 1 to 3 share.
pub(super) const SETTINGS: &[Setting] = &[
    size("head_dim", "attention.key_length", Need::Or(256)),
    one_of("hidden_activation", &["gelu_pytorch_tanh"]),
    one_of("use_bidirectional_attention", &["false"]),
];
/// The norms that the checkpoints of Gemma 1 to 3 share.
pub(super) const NORMS: &[TensorMapping] = &[
    transformed("input_layernorm", "attn_norm", Transform::AddOne),
    transformed("norm", "output_norm", Transform::AddOne),
];

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(config(keys)?, graph)
}

/// Reads the config that all Gemma families share.
pub(super) fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read(keys)?;
    config.embedding_scale = (config.hidden as f32).sqrt();
    Ok(config)
}
