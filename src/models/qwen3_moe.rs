//! Qwen3 with experts ([Qwen Team 2025](https://arxiv.org/abs/2505.09388)): its wiring, with a mixture of experts in place
//! of every feed-forward.

use super::{Config, Model, keys::Keys, qwen3::BLOCK, wiring::Wiring};
use crate::Result;

pub(super) fn build(keys: &Keys, wiring: Wiring) -> Result<Model> {
    let mut config = Config::read(keys)?;
    // A file that says nothing of an expert's width says that of all that a token goes through.
    config.must_mix(keys, |ffn, used| ffn / used)?;
    BLOCK.model(config, wiring)
}
