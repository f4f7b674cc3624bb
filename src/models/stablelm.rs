//! StableLM 2 ([Bellagente et al. 2024](https://arxiv.org/abs/2402.17834)): layer norms and partly
//! rotated heads. Some models norm each head of queries and keys, and let attention and the
//! feed-forward network read the same rows.

use super::{
    Checkpoint, Config, Model,
    block::{Block, FeedForwardInput, HeadNorms},
    checkpoint::{FULL_ATTENTION, Meaning, Need, SILU, SIZES, TENSORS, float, setting, tensor},
    command_r::LAYER_NORM,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::Result;

const BLOCK: Block = Block {
    head_norms: HeadNorms::Own,
    feed_forward_input: FeedForwardInput::NormOrShared("ffn_norm"),
    ..Block::DECODER
};

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["stablelm"],
    settings: &[
        &[
            float("layer_norm_eps", "attention.layer_norm_epsilon", Need::Or(1e-5)),
            setting("use_qkv_bias", Meaning::Biases(&["attn_q", "attn_k", "attn_v"])),
        ],
        SIZES,
        SILU,
        FULL_ATTENTION,
    ],
    tensors: &[
        &[
            tensor("self_attn.q_layernorm.norms.*.weight", "attn_q_norm.weight"),
            tensor("self_attn.k_layernorm.norms.*.weight", "attn_k_norm.weight"),
        ],
        TENSORS,
    ],
    partial_rotary_factor: Some(0.25),
    derived: |settings, tensors| {
        settings.check_tensor("qk_layernorm", true, tensors, "attn_q_norm")?;
        settings.check_tensor("use_parallel_residual", false, tensors, "ffn_norm")?;
        Ok(vec![])
    },
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    // The blocks are the same in both kinds: the file's norms tell them apart.
    keys.bool("use_parallel_residual")?;
    BLOCK.model(Config::read_as(keys, &LAYER_NORM)?, graph)
}
