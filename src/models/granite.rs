//! Granite 3 ([Granite Team 2024](https://github.com/ibm-granite/granite-3.0-language-models)),
//! dense and with experts: Llama with factors of the embedding, the scores, the residual stream and
//! the logits. There may be a shared expert.

use super::{
    Checkpoint, Config, Model,
    checkpoint::{BIASES, Need, SILU, SIZES, Setting, float},
    experts::{Mixture, shared_width},
    keys::Keys,
    llama::BLOCK,
    model_builder::ModelBuilder,
};
use crate::Result;

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["granite"],
    settings: &[SIZES, SILU, BIASES, FACTORS],
    permuted: true,
    ..Checkpoint::DECODER
};

const FACTORS: &[Setting] = &[
    float("embedding_multiplier", "embedding_scale", Need::Or(1.0)),
    float("residual_multiplier", "residual_scale", Need::Or(1.0)),
    float("attention_multiplier", "attention.scale", Need::Or(1.0)),
    float("logits_scaling", "logit_scale", Need::Or(1.0)),
];

const MIXTURE: Mixture = Mixture { has_width: false, shared: |keys, _, _| shared_width(keys), ..Mixture::SOFTMAX };

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    BLOCK.model(config(keys)?, graph)
}

pub(super) fn build_moe(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    BLOCK.model(config, graph)
}

fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read(keys)?;
    config.divide_frequencies();
    config.embedding_scale = keys.factor("embedding_scale", None)?.unwrap_or(1.0);
    config.residual_scale = keys.factor("residual_scale", None)?.unwrap_or(1.0);
    config.logit_scale = keys.float("logit_scale", f32::MIN_POSITIVE..f32::MAX, None)?.recip();
    let scale = keys.factor("attention.scale", None)?;
    let rotated = keys.bool("rope.scaling.finetuned")?.unwrap_or(true);
    for layer in &mut config.layers {
        layer.scores.scale = scale.unwrap_or(layer.scores.scale);
        layer.rope = layer.rope.filter(|_| rotated);
    }
    Ok(config)
}
