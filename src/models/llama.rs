//! Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971), [Llama Team
//! 2024](https://arxiv.org/abs/2407.21783)) and models of the same architecture: pre-norm blocks,
//! grouped-query attention, and a SwiGLU feed-forward network, or a mixture of experts as in
//! Mixtral ([Jiang et al. 2024](https://arxiv.org/abs/2401.04088)). In GGUF files queries and keys
//! are permuted so that rotary embedding turns adjacent elements. Llama 3.1 and later divide each
//! frequency by an element of `rope_freqs.weight`.

use super::{
    Checkpoint, Config, Model,
    block::Block,
    checkpoint::{BIASES, EXPERTS, Need, SILU, SIZES, TENSORS, float, one_of, tensor},
    experts::Mixture,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{Result, graph::RopeStyle};

pub(super) const BLOCK: Block = Block { style: RopeStyle::Adjacent, ..Block::DECODER };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["llama", "mistral"],
    settings: &[SIZES, SILU, BIASES, &[one_of("sliding_window", &["null"])]],
    permuted: true,
    ..Checkpoint::DECODER
};

pub(super) const MIXTRAL: Checkpoint = Checkpoint {
    model_types: &["mixtral"],
    settings: &[
        EXPERTS,
        &[
            float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-5)),
            one_of("sliding_window", &["null"]),
        ],
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

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.read_experts(keys, &Mixture::SOFTMAX)?;
    config.divide_frequencies();
    BLOCK.model(config, graph)
}
