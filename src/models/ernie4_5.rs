//! ERNIE 4.5 ([Baidu 2025](https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf)):
//! Llama in another order of rows, or with a mixture of experts after the first layers, which a
//! softmax selects with a bias, beside a shared one.

use super::{
    Checkpoint, Config, Model,
    experts::{Mixture, shared_width},
    keys::Keys,
    llama::BLOCK,
    model_builder::ModelBuilder,
};
use crate::Result;

const MIXTURE: Mixture = Mixture { biased: true, shared: |keys, _, _| shared_width(keys), ..Mixture::SOFTMAX };

pub(super) const CHECKPOINT: Checkpoint =
    Checkpoint { model_types: &["ernie4_5"], tied: true, rope_theta: 500_000.0, ..Checkpoint::DECODER };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(Config::read(keys)?, graph)
}

pub(super) fn build_moe(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    config.leave_dense(keys)?;
    config.interleave_dense(keys)?;
    BLOCK.model(config, graph)
}
