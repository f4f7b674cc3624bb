//! Qwen3.5 with experts ([Qwen Team 2026](https://qwen.ai/blog?id=qwen3.5)), text: its wiring, with a mixture of experts in
//! place of every feed-forward, and beside these an expert that every token goes through, by a gate of its own.

use super::{
    Checkpoint, Experts, Model,
    checkpoint::{BIASES, EXPERTS, Need, SILU, SIZES, TENSORS, size, tensor},
    keys::{Keys, MAX_WIDTH},
    qwen3_moe::MIXTURE,
    qwen35,
    wiring::Wiring,
};
use crate::{
    Result,
    graph::{Activation, ExpertsSpec, ValueId},
};

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["qwen3_5_moe_text"],
    config: &[
        EXPERTS,
        &[
            size("shared_expert_intermediate_size", "expert_shared_feed_forward_length", Need::Or(512)),
            // All feed-forwards are experts.
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
        qwen35::DELTA_NET,
        qwen35::NORMS,
        TENSORS,
    ],
    ..qwen35::CHECKPOINT
};

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = qwen35::config(keys)?;
    config.must_mix(keys, |ffn, _| ffn)?;
    let shared = keys.size("expert_shared_feed_forward_length", MAX_WIDTH)?;
    let hidden = config.hidden;
    qwen35::model(keys, config, wiring, |w, layer, h, name| {
        let every = self::shared(w, h, name, [hidden, shared])?;
        let chosen = layer.experts.as_ref().map(|e: &Experts| w.mixture(h, name, hidden, e, Activation::Silu));
        chosen.map_or(Ok(every), |chosen| Ok(w.builder.add(chosen?, every)))
    })
}

/// The expert that every token goes through: one of one, by the sigmoid of its gate.
fn shared(w: &mut Wiring, h: ValueId, name: &str, [hidden, ffn]: [usize; 2]) -> Result<ValueId> {
    let gate = w.linear(h, &format!("{name}_gate_inp_shexp"), 1, hidden)?;
    let gate = w.builder.activate(Activation::Sigmoid, gate);
    let mut matrix = |part: &str, rows, columns| w.weight(&format!("{name}_{part}_shexp.weight"), rows, columns);
    let matrices = [matrix("gate", ffn, hidden)?, matrix("up", ffn, hidden)?, matrix("down", hidden, ffn)?];
    let spec = ExpertsSpec { experts: 1, used: 1, activation: Activation::Silu };
    Ok(w.builder.experts(h, gate, &matrices, spec))
}
