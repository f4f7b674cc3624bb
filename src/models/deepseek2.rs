//! DeepSeek-V2 ([DeepSeek-AI 2024](https://arxiv.org/abs/2405.04434)), V3 ([DeepSeek-AI
//! 2024](https://arxiv.org/abs/2412.19437)) and models of the same architecture: multi-head latent
//! attention, and after the first layers experts in groups beside shared ones.
//!
//! The cache has one row for each position, a latent and a rotated part, which serves all heads as
//! key and as value. The matrices that would make a head's keys and values of the latent are
//! applied to its query and to its result instead.

use super::{
    Config, LayerConfig, Model, RopeConfig, RopeScaling,
    block::Block,
    config::{Conventions, HeadDimKeys, MAX_HEAD_DIM, Temperature},
    experts::{Choice, Mixture, shared_count},
    keys::{Keys, MAX_CONTEXT, MAX_WIDTH},
    model_builder::ModelBuilder,
    mtp,
};
use crate::{
    Result,
    graph::{ExpertScore, HEAD_UNIT, LayerCache, RopeSpec, RopeStyle, ValueId},
};

const BLOCK: Block = Block::DECODER;

const KEY_LENGTH: &str = "attention.key_length_mla";
const RANK: &str = "attention.kv_lora_rank";
const ROTATED: &str = "rope.dimension_count";

const CONVENTIONS: Conventions = Conventions {
    has_yarn_keys: true,
    head_dim: HeadDimKeys { key_length: KEY_LENGTH, value_length: None },
    ..Conventions::COMMON
};

const MIXTURE: Mixture = Mixture {
    score: Choice::Unless(ExpertScore::Softmax),
    normalized: Choice::Unless(false),
    grouped: true,
    shared: |keys, _, ffn| shared_count(keys, ffn),
    ..Mixture::SIGMOID
};

/// The sizes of latent attention.
#[derive(Clone, Copy)]
struct Latent {
    /// The width of the latent of queries, if they have one.
    query_rank: Option<usize>,
    /// The width of the latent of keys and values.
    rank: usize,
    /// The elements of a head that are not rotated.
    plain: usize,
    /// The elements of a head that are rotated, and follow the others.
    rotated: usize,
    /// The elements of a value of a head.
    value: usize,
}

pub(super) fn build(keys: &Keys, mut graph: ModelBuilder) -> Result<Model> {
    keys.required(KEY_LENGTH, keys.get(KEY_LENGTH))?;
    let mut config = Config::read_as(keys, &CONVENTIONS)?;
    config.split_mtp(keys)?;
    let score = Choice::Unless(default_score(&config));
    config.require_experts(keys, &Mixture { score, ..MIXTURE })?;
    config.leave_dense(keys)?;
    let latent = latent(keys, &mut config)?;
    if let Some(scale) = keys.factor("attention.temperature_scale", None)? {
        let interval = keys.size("attention.temperature_length", MAX_CONTEXT)?;
        let temperature = Temperature { scale, interval, offset: 0 };
        config.layers.iter_mut().for_each(|layer| layer.temperature = Some(temperature));
    }

    mtp::refuse_alone(&graph, &config)?;
    let mut x = graph.embedding(&config)?;
    let add_layer = |graph: &mut ModelBuilder, config: &Config, layer: &LayerConfig, x, index| {
        let normed = graph.norm(x, &format!("blk.{index}.attn_norm"), config)?;
        let output = attention(graph, config, layer, &latent, normed, index)?;
        let x = graph.ops.add(x, output);
        BLOCK.feed_forward(config, layer, graph, x, index)
    };
    for (index, layer) in config.layers.iter().enumerate() {
        x = add_layer(&mut graph, &config, layer, x, index)?;
    }
    mtp::finish(graph, config, x, &add_layer)
}

/// Returns the probabilities of experts in files without the key. Those of GLM-4.7-Flash are known
/// by its sizes.
fn default_score(config: &Config) -> ExpertScore {
    const GLM_LAYERS: usize = 47;
    const GLM_VOCABULARY: usize = 154_880;
    match (config.layers.len(), config.vocab_size) {
        (GLM_LAYERS, GLM_VOCABULARY) => ExpertScore::Sigmoid,
        _ => ExpertScore::Softmax,
    }
}

/// Reads the sizes of attention, and gives every layer the scale of its scores.
fn latent(keys: &Keys, config: &mut Config) -> Result<Latent> {
    let head_dim = config.layers[0].head_dim;
    let rotated = keys.size(ROTATED, head_dim)?;
    let (rank, plain) = (keys.size(RANK, MAX_HEAD_DIM)?, head_dim - rotated);
    for (key, elements) in [(KEY_LENGTH, plain), (RANK, rank)] {
        if elements == 0 || !elements.is_multiple_of(HEAD_UNIT) {
            let what =
                format!("leaves {elements} elements that are not rotated, but a multiple of {HEAD_UNIT} is needed");
            return Err(keys.error(key, what));
        }
    }
    keys.expect("attention.head_count_kv", 1)?;
    keys.expect("attention.key_length", (rank + rotated) as u64)?;
    keys.expect("attention.value_length", rank as u64)?;
    keys.expect("rope.scaling.attn_factor", 1)?;
    for layer in config.layers.iter_mut().chain(&mut config.mtp) {
        if let Some(rope) = &layer.rope {
            layer.scores.scale *= score_factor(keys, rope)?;
        }
    }
    let query_rank = keys.optional_size("attention.q_lora_rank", MAX_WIDTH)?;
    let value = keys.size("attention.value_length_mla", MAX_HEAD_DIM)?;
    Ok(Latent { query_rank, rank, plain, rotated, value })
}

/// Returns the factor of scores. YaRN's stretching multiplies whole scores, also of elements that
/// are not rotated.
fn score_factor(keys: &Keys, rope: &RopeConfig) -> Result<f32> {
    const MULTIPLIER: &str = "rope.scaling.yarn_log_multiplier";
    match rope.scaling {
        RopeScaling::None => Ok(1.0),
        RopeScaling::Linear { .. } => {
            Err(keys
                .error("rope.scaling.type", "is linear, but only none and yarn are supported for this architecture"))
        }
        RopeScaling::Yarn { log_multiplier: 0.0, .. } => {
            Err(keys.error(MULTIPLIER, "is missing or 0: convert the model again, with a newer converter"))
        }
        // The converter has already multiplied it by 0.1.
        RopeScaling::Yarn { factor, log_multiplier, .. } => Ok((1.0 + log_multiplier * factor.ln()).powi(2)),
    }
}

/// Returns the result of the attention of layer `index` over the normed rows `x`.
fn attention(
    graph: &mut ModelBuilder,
    config: &Config,
    layer: &LayerConfig,
    latent: &Latent,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.attn_{part}");
    let &LayerConfig { heads, head_dim, .. } = layer;
    let &Latent { rank, plain, rotated, value, .. } = latent;
    let row = rank + rotated;

    let q = queries(graph, config, layer, latent, x, index)?;
    let kv = graph.linear(x, &name("kv_a_mqa"), row, config.hidden)?;
    let [q_plain, q_rotated] = [(0, plain), (plain, rotated)].map(|(at, len)| graph.ops.slice(q, at, len, head_dim));
    let [k_plain, k_rotated] = [(0, rank), (rank, rotated)].map(|(at, len)| graph.ops.slice(kv, at, len, row));
    let k_plain = graph.rms_norm(k_plain, &name("kv_a_norm"), rank, config.rms_eps)?;
    let [q_rotated, k_rotated] = rotate(graph, layer, rotated, [q_rotated, k_rotated])?;

    let to_latent = graph.stack(&name("k_b.weight"), heads, rank, plain)?;
    let q_plain = graph.ops.matmul_heads(q_plain, to_latent, heads);
    let q = graph.ops.concat_groups(&[q_plain, q_rotated], heads);
    let k = graph.ops.concat(&[k_plain, k_rotated]);
    let q = graph.temper(layer, q);
    let cache = LayerCache { kv_heads: 1, head_dim: row, keys_only: true };
    let attended = graph.ops.attention_to_keys([q, k], cache, heads, layer.scores);
    let attended = graph.ops.slice(attended, 0, rank, row);
    let of_latent = graph.stack(&name("v_b.weight"), heads, value, rank)?;
    let values = graph.ops.matmul_heads(attended, of_latent, heads);
    graph.linear(values, &name("output"), config.hidden, heads * value)
}

/// Returns the queries of layer `index`, through their latent if the file has no matrix for them.
fn queries(
    graph: &mut ModelBuilder,
    config: &Config,
    layer: &LayerConfig,
    latent: &Latent,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.attn_q{part}");
    let width = layer.heads * layer.head_dim;
    match latent.query_rank {
        Some(rank) if !graph.has(&name(".weight")) => {
            let x = graph.linear(x, &name("_a"), rank, config.hidden)?;
            let x = graph.rms_norm(x, &name("_a_norm"), rank, config.rms_eps)?;
            graph.linear(x, &name("_b"), width, rank)
        }
        Some(_) | None => graph.linear(x, &name(""), width, config.hidden),
    }
}

/// Returns rows of heads of `head_dim` elements, all rotated.
fn rotate(graph: &mut ModelBuilder, layer: &LayerConfig, head_dim: usize, heads: [ValueId; 2]) -> Result<[ValueId; 2]> {
    let Some(rope) = &layer.rope else { return Ok(heads) };
    let frequencies = graph.frequencies(rope)?;
    let spec = RopeSpec { style: RopeStyle::Adjacent, head_dim, axes: rope.axes };
    Ok(heads.map(|x| graph.ops.rope(x, frequencies, spec)))
}
