//! Qwen1.5 and Qwen2 with experts ([Yang et al. 2024](https://arxiv.org/abs/2407.10671)): Qwen2 with
//! a mixture of experts, whose weights are not divided by their sum, and a shared one with a gate.

use super::{
    Config, Model,
    experts::{Choice, Mixture, shared_width},
    keys::Keys,
    model_builder::ModelBuilder,
    qwen2::BLOCK,
};
use crate::Result;

const MIXTURE: Mixture = Mixture {
    width: |ffn, top_k| ffn / top_k,
    normalized: Choice::Always(false),
    shared: |keys, ffn, _| Ok(Some(shared_width(keys)?.unwrap_or(ffn))),
    shared_gate: true,
    ..Mixture::SOFTMAX
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    BLOCK.model(config, graph)
}
