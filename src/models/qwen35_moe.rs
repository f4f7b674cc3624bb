//! Qwen3.5 with experts ([Qwen Team 2026](https://qwen.ai/blog?id=qwen3.5)), text: Qwen3.5 with a
//! mixture of experts instead of every feed-forward network, and in parallel an expert with a gate
//! that all tokens share.

use super::{
    Checkpoint, Model,
    checkpoint::{BIASES, EXPERTS, Need, SILU, SIZES, TENSORS, size, tensor},
    keys::{Keys, MAX_WIDTH},
    model_builder::{FeedForward, ModelBuilder},
    qwen3_moe::MIXTURE,
    qwen35,
};
use crate::{
    Result,
    graph::{Activation, ExpertsSpec, ValueId},
};

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
    tensors: &[
        &[
            tensor("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
            tensor("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
            tensor("mlp.shared_expert.up_proj", "ffn_up_shexp"),
            tensor("mlp.shared_expert.down_proj", "ffn_down_shexp"),
        ],
        MIXTURE,
        qwen35::HEAD,
        qwen35::DELTA_NET,
        qwen35::NORMS,
        TENSORS,
    ],
    ..qwen35::CHECKPOINT
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = qwen35::config(keys)?;
    config.require_experts(keys, |ffn, _| ffn)?;
    let hidden = config.hidden;
    let ffn = keys.size("expert_shared_feed_forward_length", MAX_WIDTH)?;
    let network = FeedForward { hidden, ffn, activation: Activation::Silu };
    qwen35::model(keys, config, graph, |graph, layer, x, name| {
        let shared = shared_expert(graph, x, name, network)?;
        let Some(experts) = &layer.experts else { return Ok(shared) };
        let routed = graph.mixture(x, name, hidden, experts, Activation::Silu)?;
        Ok(graph.ops.add(routed, shared))
    })
}

/// Returns the result of the expert that all tokens share: a mixture of one expert, whose weight is
/// the sigmoid of its gate.
fn shared_expert(graph: &mut ModelBuilder, x: ValueId, name: &str, network: FeedForward) -> Result<ValueId> {
    let FeedForward { hidden, ffn, activation } = network;
    let weight = graph.linear(x, &format!("{name}_gate_inp_shexp"), 1, hidden)?;
    let weight = graph.ops.activate(Activation::Sigmoid, weight);
    let mut matrix = |part: &str, rows, columns| graph.weight(&format!("{name}_{part}_shexp.weight"), rows, columns);
    let matrices = [matrix("gate", ffn, hidden)?, matrix("up", ffn, hidden)?, matrix("down", hidden, ffn)?];
    Ok(graph.ops.experts(x, weight, &matrices, ExpertsSpec { experts: 1, top_k: 1, activation }))
}
