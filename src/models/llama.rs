//! Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971), [Llama Team 2024](https://arxiv.org/abs/2407.21783))
//! and the many models of its wiring: pre-norm blocks, grouped-query attention, a SwiGLU feed-forward, or experts in its
//! place as in Mixtral ([Jiang et al. 2024](https://arxiv.org/abs/2401.04088)). The converter has permuted queries and
//! keys so that adjacent elements are rotated together. Llama 3.1 and later stretch each frequency by a divisor of its
//! own.

use super::{
    Checkpoint, Config, Model, RopeConfig,
    block::Block,
    checkpoint::{BIASES, EXPERTS, Need, SILU, SIZES, TENSORS, float, only, tensor},
    keys::Keys,
    wiring::Wiring,
};
use crate::{
    Result,
    graph::{Activation, RopeStyle},
};

pub(super) const BLOCK: Block =
    Block { style: RopeStyle::Adjacent, head_norms: false, post_norms: false, activation: Activation::Silu };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["llama", "mistral"],
    config: &[SIZES, SILU, BIASES, &[only("sliding_window", &["null"])]],
    permuted: true,
    ..Checkpoint::DECODER
};

pub(super) const MIXTRAL: Checkpoint = Checkpoint {
    model_types: &["mixtral"],
    config: &[
        EXPERTS,
        &[float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-5)), only("sliding_window", &["null"])],
        SIZES,
        SILU,
    ],
    tensors: &[
        &[
            tensor("block_sparse_moe.gate", "ffn_gate_inp"),
            tensor("block_sparse_moe.experts.*.w1", "ffn_gate_exps"),
            tensor("block_sparse_moe.experts.*.w3", "ffn_up_exps"),
            tensor("block_sparse_moe.experts.*.w2", "ffn_down_exps"),
        ],
        TENSORS,
    ],
    rope_theta: 1_000_000.0,
    ..CHECKPOINT
};

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.mix(keys, |ffn, _| ffn)?;
    for layer in &mut config.layers {
        layer.rope = layer.rope.map(|rope| RopeConfig { divisors: Some("rope_freqs.weight"), ..rope });
    }
    BLOCK.model(config, wiring)
}
