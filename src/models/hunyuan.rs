//! Hunyuan ([Tencent Hunyuan Team 2024](https://arxiv.org/abs/2411.02265)), dense and with experts:
//! norms of the heads of queries and keys after they are rotated. Beside the experts there is a
//! shared one.

use super::{
    Checkpoint, Config, Model,
    block::{Block, HeadNorms},
    checkpoint::{BIASES, FULL_ATTENTION, SILU, SIZES, TENSORS, tensor},
    experts::{Mixture, shared_width},
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block { head_norms: HeadNorms::Rotated, ..Block::DECODER };

const MIXTURE: Mixture = Mixture {
    has_width: false,
    shared: |keys, ffn, _| Ok(Some(shared_width(keys)?.unwrap_or(ffn))),
    ..Mixture::SOFTMAX
};

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["hunyuan_v1_dense"],
    settings: &[SIZES, SILU, FULL_ATTENTION, BIASES],
    tensors: &[
        &[tensor("self_attn.query_layernorm", "attn_q_norm"), tensor("self_attn.key_layernorm", "attn_k_norm")],
        TENSORS,
    ],
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read(keys)?, graph)
}

pub(super) fn build_moe(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    BLOCK.model(config, graph)
}
