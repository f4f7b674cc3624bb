//! Qwen3.5 with experts ([Qwen Team 2026](https://qwen.ai/blog?id=qwen3.5)), text: Qwen3.5 with a
//! mixture of experts instead of every feed-forward network, and in parallel an expert with a gate
//! that all tokens share.

use super::{
    Checkpoint, Model,
    checkpoint::{BIASES, EXPERTS, Need, SILU, SIZES, TENSORS, TensorMapping, size, tensor},
    experts::{Mixture, SHARED_WIDTH},
    keys::{Keys, MAX_WIDTH},
    model_builder::ModelBuilder,
    qwen3_moe::MIXTURE,
    qwen35,
};
use crate::{Result, graph::Activation};

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen3_5_moe_text"],
    settings: &[
        EXPERTS,
        &[
            size("shared_expert_intermediate_size", "expert_shared_feed_forward_length", Need::Or(512)),
            // Models of this family have no dense feed-forward networks.
            size("intermediate_size", "feed_forward_length", Need::Optional),
        ],
        qwen35::LAYERS,
        SIZES,
        SILU,
        BIASES,
    ],
    tensors: &[SHARED_EXPERT, MIXTURE, qwen35::HEAD, qwen35::DELTA_NET, qwen35::NORMS, TENSORS],
    ..qwen35::CHECKPOINT
};

/// The tensors of the shared expert and of its gate.
pub(super) const SHARED_EXPERT: &[TensorMapping] = &[
    tensor("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    tensor("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    tensor("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    tensor("mlp.shared_expert.down_proj", "ffn_down_shexp"),
];

const MIXTURE_WITH_SHARED: Mixture = Mixture {
    shared: |keys, _, _| keys.size(SHARED_WIDTH, MAX_WIDTH).map(Some),
    shared_gate: true,
    ..Mixture::SOFTMAX
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    model(keys, graph, false)
}

/// Builds a model, whose matrices of DeltaNets may be `joined`.
pub(super) fn model(keys: &Keys, graph: ModelBuilder, joined: bool) -> Result<Model> {
    let mut config = qwen35::config(keys)?;
    config.require_experts(keys, &MIXTURE_WITH_SHARED)?;
    let hidden = config.hidden;
    qwen35::model(keys, config, graph, joined, |graph, layer, x, name| match &layer.experts {
        Some(experts) => graph.mixture(x, name, hidden, experts, Activation::Silu),
        None => Ok(x),
    })
}
