//! GLM-4 of 2025 ([GLM Team 2024](https://arxiv.org/abs/2406.12793)): partly rotated heads, and
//! norms both before and after attention and the feed-forward network.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{FULL_ATTENTION, Need, SILU, SIZES, TENSORS, float, tensor},
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::RopeStyle};

const BLOCK: Block = Block { style: RopeStyle::Adjacent, post_norms: true, ..Block::DECODER };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["glm4"],
    settings: &[
        &[float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1.5625e-7))],
        SIZES,
        SILU,
        FULL_ATTENTION,
    ],
    tensors: &[
        &[
            tensor("post_self_attn_layernorm", "post_attention_norm"),
            tensor("post_mlp_layernorm", "post_ffw_norm"),
            tensor("mlp.gate_up_proj", "ffn_up"),
        ],
        TENSORS,
    ],
    partial_rotary_factor: Some(0.5),
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.split_mtp(keys)?;
    BLOCK.model(config, graph)
}
