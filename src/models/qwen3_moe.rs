//! Qwen3 with experts ([Qwen Team 2025](https://arxiv.org/abs/2505.09388)): Qwen3 with a mixture of
//! experts instead of every feed-forward network.

use super::{
    Checkpoint, Config, Model,
    checkpoint::{
        BIASES, EXPERTS, FULL_ATTENTION, Meaning, SILU, SIZES, TENSORS, TensorMapping, one_of, setting, tensor,
    },
    experts::Mixture,
    keys::Keys,
    model_builder::ModelBuilder,
    qwen3::{self, BLOCK},
};
use crate::Result;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen3_moe"],
    settings: &[
        EXPERTS,
        &[
            setting("norm_topk_prob", Meaning::Flag("expert_weights_norm", false)),
            // Some layers without experts are not supported.
            one_of("decoder_sparse_step", &["1"]),
            one_of("mlp_only_layers", &["[]"]),
        ],
        qwen3::HEADS,
        SIZES,
        SILU,
        FULL_ATTENTION,
        BIASES,
    ],
    tensors: &[MIXTURE, TENSORS],
    ..Checkpoint::DECODER
};

/// The tensors of the experts in the checkpoints of all Qwen families.
pub(super) const MIXTURE: &[TensorMapping] = &[
    tensor("mlp.gate", "ffn_gate_inp"),
    tensor("mlp.experts.*.gate_proj", "ffn_gate_exps"),
    tensor("mlp.experts.*.up_proj", "ffn_up_exps"),
    tensor("mlp.experts.*.down_proj", "ffn_down_exps"),
    // Some checkpoints store all experts in one tensor.
    tensor("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    tensor("mlp.experts.down_proj", "ffn_down_exps.weight"),
];

/// In a file without a width of an expert, `feed_forward_length` is the width of `top_k` experts.
pub(super) const EXPERTS_OF_FFN: Mixture = Mixture { width: |ffn, top_k| ffn / top_k, ..Mixture::SOFTMAX };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.require_experts(keys, &EXPERTS_OF_FFN)?;
    BLOCK.model(config, graph)
}
