//! Phi-1, Phi-1.5 and Phi-2 ([Li et al. 2023](https://arxiv.org/abs/2309.05463)): attention and a
//! feed-forward network of GELU without a gate read the same layer norm. Heads are partly rotated,
//! and all matrices have biases.

use super::{
    Checkpoint, Config, Model,
    block::{Block, FeedForwardInput},
    checkpoint::{FULL_ATTENTION, Need, SIZES, TENSORS, float, one_of, tensor},
    command_r::LAYER_NORM,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::Activation};

const BLOCK: Block = Block {
    feed_forward_input: FeedForwardInput::Shared,
    activation: Activation::Gelu,
    gated: false,
    ..Block::DECODER
};

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["phi"],
    settings: &[
        &[
            float("layer_norm_eps", "attention.layer_norm_epsilon", Need::Or(1e-5)),
            one_of("hidden_act", &["gelu_new", "gelu_pytorch_tanh"]),
            one_of("qk_layernorm", &["false"]),
        ],
        SIZES,
        FULL_ATTENTION,
    ],
    tensors: &[
        &[
            tensor("final_layernorm", "output_norm"),
            tensor("self_attn.dense", "attn_output"),
            tensor("mlp.fc1", "ffn_up"),
            tensor("mlp.fc2", "ffn_down"),
        ],
        TENSORS,
    ],
    partial_rotary_factor: Some(0.5),
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read_as(keys, &LAYER_NORM)?, graph)
}
