//! Qwen3-Next ([Qwen Team 2025](https://qwen.ai/blog?id=qwen3-next)): as Qwen3.5 with experts, with
//! the matrices of gated DeltaNets joined by key head.

use super::{Model, keys::Keys, model_builder::ModelBuilder, qwen35_moe};
use crate::Result;

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    qwen35_moe::model(keys, graph, true)
}
