//! Granite 3 ([Granite Team 2024](https://github.com/ibm-granite/granite-3.0-language-models)),
//! dense and with experts: Llama with factors of the embedding, the scores, the residual stream and
//! the logits. There may be a shared expert. In Granite 4 most layers are Mamba-2 rather than
//! attention, and heads need not be rotated.

use super::{
    Checkpoint, Config, Model,
    checkpoint::{BIASES, Need, SILU, SIZES, Setting, float},
    config::Conventions,
    experts::{Mixture, shared_width},
    keys::Keys,
    llama::BLOCK,
    mamba::Mamba,
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
    BLOCK.model(config(keys, &Conventions::COMMON)?, graph)
}

pub(super) fn build_moe(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys, &Conventions::COMMON)?;
    config.require_experts(keys, &MIXTURE)?;
    BLOCK.model(config, graph)
}

pub(super) fn build_hybrid(keys: &Keys, mut graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys, &Conventions { has_other_layers: true, ..Conventions::COMMON })?;
    config.read_experts(keys, &MIXTURE)?;
    let mamba = Mamba::read(keys)?;
    let mut x = graph.embedding(&config)?;
    for (index, layer) in config.layers.iter().enumerate() {
        let normed = graph.norm(x, &format!("blk.{index}.attn_norm"), &config)?;
        let output = match layer.kv_heads {
            0 => mamba.layer(&mut graph, &config, normed, index)?,
            _ => BLOCK.attention(&config, layer, &mut graph, normed, index)?,
        };
        x = BLOCK.add_residual(&config, &mut graph, x, output, "post_attention_norm")?;
        x = BLOCK.feed_forward(&config, layer, &mut graph, x, index)?;
    }
    graph.finish(config, x)
}

fn config(keys: &Keys, conventions: &Conventions) -> Result<Config> {
    let mut config = Config::read_as(keys, conventions)?;
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
