//! Qwen3 with experts ([Qwen Team 2025](https://arxiv.org/abs/2505.09388)): its wiring, with a mixture of experts in place
//! of every feed-forward.

use super::{
    Checkpoint, Config, Model,
    checkpoint::{BIASES, EXPERTS, FULL_ATTENTION, Means, SILU, SIZES, TENSORS, Tensor, key, only, tensor},
    keys::Keys,
    qwen3::{self, BLOCK},
    wiring::Wiring,
};
use crate::Result;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen3_moe"],
    config: &[
        EXPERTS,
        &[
            key("norm_topk_prob", Means::Flag("expert_weights_norm", false)),
            // Layers with a feed-forward of the usual kind.
            only("decoder_sparse_step", &["1"]),
            only("mlp_only_layers", &["[]"]),
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

/// What the checkpoints of all Qwens with experts have in common.
pub(super) const MIXTURE: &[Tensor] = &[
    tensor("mlp.gate", "ffn_gate_inp"),
    tensor("mlp.experts.*.gate_proj", "ffn_gate_exps"),
    tensor("mlp.experts.*.up_proj", "ffn_up_exps"),
    tensor("mlp.experts.*.down_proj", "ffn_down_exps"),
    // In checkpoints of some all experts are one tensor.
    tensor("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    tensor("mlp.experts.down_proj", "ffn_down_exps.weight"),
];

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = Config::read(keys)?;
    // A file that says nothing of an expert's width says that of all that a token goes through.
    config.must_mix(keys, |ffn, used| ffn / used)?;
    BLOCK.model(config, wiring)
}
