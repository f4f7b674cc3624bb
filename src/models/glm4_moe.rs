//! GLM-4.5 and later ([GLM Team 2025](https://arxiv.org/abs/2508.06471)): partly rotated heads with
//! norms in some models, and after the first layers experts that a sigmoid selects, in groups and
//! with a bias ([DeepSeek-AI 2024](https://arxiv.org/abs/2412.19437)), beside a shared one.

use super::{
    Checkpoint, Config, Model,
    block::{Block, FeedForwardInput, HeadNorms},
    checkpoint::{
        FULL_ATTENTION, KeyValues, Meaning, Need, SILU, SIZES, Settings, TENSORS, float, setting, size, tensor,
    },
    experts::{Choice, Mixture, shared_count},
    keys::Keys,
    model_builder::ModelBuilder,
    qwen3_moe::MIXTURE as EXPERT_TENSORS,
};
use crate::{
    Result,
    gguf::{TensorInfo, Value},
};

const BLOCK: Block = Block {
    head_norms: HeadNorms::IfThere,
    feed_forward_input: FeedForwardInput::Norm("post_attention_norm"),
    ..Block::DECODER
};

const MIXTURE: Mixture = Mixture {
    normalized: Choice::Unless(false),
    grouped: true,
    shared: |keys, _, ffn| shared_count(keys, ffn),
    ..Mixture::SIGMOID
};

const LAYERS: &str = "num_hidden_layers";

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["glm4_moe"],
    settings: &[
        &[
            setting(LAYERS, Meaning::Derived("block_count")),
            float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-5)),
            size("n_routed_experts", "expert_count", Need::Or(128)),
            size("num_experts_per_tok", "expert_used_count", Need::Or(8)),
            size("n_shared_experts", "expert_shared_count", Need::Or(1)),
            size("moe_intermediate_size", "expert_feed_forward_length", Need::Or(1408)),
            size("first_k_dense_replace", "leading_dense_block_count", Need::Or(1)),
            size("n_group", "expert_group_count", Need::Or(1)),
            size("topk_group", "expert_group_used_count", Need::Or(1)),
            setting("norm_topk_prob", Meaning::Flag("expert_weights_norm", true)),
            float("routed_scaling_factor", "expert_weights_scale", Need::Or(1.0)),
        ],
        SIZES,
        SILU,
        FULL_ATTENTION,
    ],
    tensors: &[
        &[
            tensor("post_attention_layernorm", "post_attention_norm"),
            tensor("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
            tensor("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
            tensor("mlp.shared_experts.up_proj", "ffn_up_shexp"),
            tensor("mlp.shared_experts.down_proj", "ffn_down_shexp"),
            // The layer after the last is the head for multi-token prediction.
            tensor("eh_proj", "nextn.eh_proj"),
            tensor("enorm", "nextn.enorm"),
            tensor("hnorm", "nextn.hnorm"),
            tensor("shared_head.norm", "nextn.shared_head_norm"),
            tensor("shared_head.head", "nextn.shared_head_head"),
        ],
        EXPERT_TENSORS,
        TENSORS,
    ],
    partial_rotary_factor: Some(0.5),
    derived: layers,
    ..Checkpoint::DECODER
};

/// Returns the number of layers, with the head for multi-token prediction if the tensors have one.
fn layers(settings: &Settings, tensors: &[TensorInfo]) -> Result<KeyValues> {
    settings.check_tensor("use_qk_norm", true, tensors, "attn_q_norm")?;
    let layers = settings.size(LAYERS)?.ok_or_else(|| settings.error(LAYERS, "is missing"))?;
    let head = format!("blk.{layers}.");
    if !tensors.iter().any(|tensor| tensor.name.starts_with(&head)) {
        return Ok(vec![("block_count", Value::U32(layers))]);
    }
    Ok(vec![("block_count", Value::U32(layers.saturating_add(1))), ("nextn_predict_layers", Value::U32(1))])
}

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.split_mtp(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    config.leave_dense(keys)?;
    BLOCK.model(config, graph)
}
