//! Qwen1.5 and Qwen2 with experts ([Yang et al. 2024](https://arxiv.org/abs/2407.10671)): Qwen2
//! with a mixture of experts, whose weights are not divided by their sum, and a shared one with a
//! gate.

use super::{
    Checkpoint, Config, Model,
    checkpoint::{EXPERTS, FULL_ATTENTION, Meaning, Need, SILU, SIZES, TENSORS, one_of, setting, size},
    experts::{Choice, Mixture, shared_width},
    keys::Keys,
    model_builder::ModelBuilder,
    qwen2::BLOCK,
    qwen3_moe::MIXTURE as MIXTURE_TENSORS,
    qwen35_moe::SHARED_EXPERT,
};
use crate::Result;

const MIXTURE: Mixture = Mixture {
    width: |ffn, top_k| ffn / top_k,
    normalized: Choice::Always(false),
    shared: |keys, ffn, _| Ok(Some(shared_width(keys)?.unwrap_or(ffn))),
    shared_gate: true,
    ..Mixture::SOFTMAX
};

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen2_moe"],
    settings: &[
        EXPERTS,
        &[
            size("shared_expert_intermediate_size", "expert_shared_feed_forward_length", Need::Or(5632)),
            setting("norm_topk_prob", Meaning::Flag("expert_weights_norm", false)),
            // Some layers without experts are not supported.
            one_of("decoder_sparse_step", &["1"]),
            one_of("mlp_only_layers", &["[]"]),
        ],
        SIZES,
        SILU,
        FULL_ATTENTION,
    ],
    tensors: &[SHARED_EXPERT, MIXTURE_TENSORS, TENSORS],
    ..Checkpoint::DECODER
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    BLOCK.model(config, graph)
}
