//! Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971), [Llama Team 2024](https://arxiv.org/abs/2407.21783))
//! and the many models of its wiring: pre-norm blocks, grouped-query attention, a SwiGLU feed-forward, or experts in its
//! place as in Mixtral ([Jiang et al. 2024](https://arxiv.org/abs/2401.04088)). The converter has permuted queries and
//! keys so that adjacent elements are rotated together. Llama 3.1 and later stretch each frequency by a divisor of its
//! own.

use super::{
    Checkpoint, Config, Model, RopeConfig,
    block::Block,
    checkpoint::{BIASES, SILU, SIZES, only},
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

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.mix(keys, |ffn, _| ffn)?;
    for layer in &mut config.layers {
        layer.rope = layer.rope.map(|rope| RopeConfig { divided: true, ..rope });
    }
    BLOCK.model(config, wiring)
}
