//! Gemma, the first one ([Gemma Team 2024](https://arxiv.org/abs/2403.08295)): rows of the embedding that grow by the root
//! of their width, pre-norm blocks, wide heads that share few or one for keys and values, and a feed-forward gated by
//! GELU. The converter has added the one that the checkpoint's norm weights lack.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{BIASES, Key, Need, SIZES, TENSORS, Tensor, less_one, only, size},
    keys::Keys,
    wiring::Wiring,
};
use crate::{
    Result,
    graph::{Activation, RopeStyle},
};

const BLOCK: Block =
    Block { style: RopeStyle::Halves, head_norms: false, post_norms: false, activation: Activation::Gelu };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["gemma"],
    // The first configs say `gelu` and mean its approximation too.
    config: &[&[only("hidden_act", &["gelu_pytorch_tanh", "gelu"])], SETTINGS, SIZES, BIASES],
    tensors: &[&[less_one("post_attention_layernorm", "ffn_norm")], NORMS, TENSORS],
    tied: true,
    ..Checkpoint::DECODER
};

/// What the checkpoints of all Gemmas have in common.
pub(super) const SETTINGS: &[Key] = &[
    size("head_dim", "attention.key_length", Need::Or(256)),
    only("hidden_activation", &["gelu_pytorch_tanh"]),
    only("use_bidirectional_attention", &["false"]),
];
pub(super) const NORMS: &[Tensor] = &[less_one("input_layernorm", "attn_norm"), less_one("norm", "output_norm")];

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    BLOCK.model(config(keys)?, wiring)
}

/// What all Gemmas have in common.
pub(super) fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read(keys)?;
    config.embedding_scale = (config.hidden as f32).sqrt();
    Ok(config)
}
