//! StarCoder2 ([Lozhkov et al. 2024](https://arxiv.org/abs/2402.19173)): layer norms, biases
//! everywhere, and a feed-forward network of GELU without a gate.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{FULL_ATTENTION, Need, SIZES, TENSORS, float, one_of, tensor},
    command_r::LAYER_NORM,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::Activation};

const BLOCK: Block = Block { activation: Activation::Gelu, gated: false, ..Block::DECODER };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["starcoder2"],
    settings: &[
        &[
            float("norm_epsilon", "attention.layer_norm_epsilon", Need::Or(1e-5)),
            one_of("hidden_act", &["gelu_pytorch_tanh"]),
            one_of("use_bias", &["true"]),
            one_of("sliding_window", &["null"]),
        ],
        SIZES,
        FULL_ATTENTION,
    ],
    tensors: &[&[tensor("mlp.c_fc", "ffn_up"), tensor("mlp.c_proj", "ffn_down")], TENSORS],
    tied: true,
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read_as(keys, &LAYER_NORM)?, graph)
}
