//! Gemma 3n ([Gemma Team 2025](https://ai.google.dev/gemma/docs/gemma-3n)), text: an embedding of
//! the token for each layer and layers that read the cache of an earlier layer, as in Gemma 4;
//! several residual streams, of which each layer computes one and predicts and corrects the others
//! (AltUp, [Baykal et al. 2023](https://arxiv.org/abs/2301.13310)); a product of low rank beside
//! attention (LAuReL, [Menghani et al. 2024](https://arxiv.org/abs/2411.07501)); and first layers
//! that keep only the largest elements of the gate ([You et al.
//! 2025](https://arxiv.org/abs/2506.06644)).

use super::{
    Config, LayerConfig, Model, RopeConfig, gemma,
    gemma3::SLIDING_BASE,
    gemma4::{self, Gemma4Sizes},
    keys::{Keys, MAX_WIDTH},
    model_builder::{FeedForward, ModelBuilder, Projection},
    streams::Streams,
};
use crate::{
    Result,
    gguf::{Array, Value},
    graph::{Activation, ValueId},
};

/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 5;
/// The number of layers with keys and values of their own, in files that do not say it.
const KV_LAYERS: usize = 20;
/// The number of first layers with a sparse gate, in files that do not say it.
const SPARSE_LAYERS: usize = 10;
/// The deviations above the mean beyond which 5% of normal numbers are.
const SPARSITY: f32 = 1.644_853_4;
/// The cap of the logits in files that do not say it.
const LOGIT_CAP: f32 = 30.0;
/// The number added to a variance, which is only to be finite where all elements are equal.
const LEAST_VARIANCE: f32 = 1e-20;

pub(super) fn build(keys: &Keys, mut graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys)?;
    let readers = config.layers.len().saturating_sub(KV_LAYERS);
    let sizes = gemma4::sizes(keys, &mut config, readers)?;
    let sparsity = sparsity(keys, config.layers.len())?;
    let streams = Streams::read(keys, &config)?;
    let x = graph.embedding(&config)?;
    let inputs = gemma4::layer_inputs(&config, &sizes, &mut graph, x)?;
    let mut rows = streams.spread(&mut graph, x)?;
    for (index, layer) in config.layers.iter().enumerate() {
        let predicted = streams.predict(&mut graph, rows, index)?;
        let active = streams.active(&mut graph, predicted);
        let x = attention(&config, layer, &sizes, &mut graph, active, index)?;
        let x = feed_forward(&config, layer, sparsity[index], &mut graph, x, index)?;
        let corrected = streams.correct(&mut graph, predicted, x, index)?;
        let active = streams.active(&mut graph, corrected);
        let scale = graph.weight(&format!("blk.{index}.altup_correct_scale.weight"), 1, config.hidden)?;
        let scaled = graph.ops.mul(active, scale);
        let input = gemma4::layer_input(&config, &sizes, &mut graph, scaled, inputs, index)?;
        rows = streams.add_to_others(&mut graph, corrected, input);
    }
    let x = streams.join(&mut graph, rows)?;
    graph.finish(config, x)
}

fn config(keys: &Keys) -> Result<Config> {
    let mut config = gemma::config(keys)?;
    let window = keys.required("attention.sliding_window", keys.window()?)?;
    config.set_windows(keys, window, PERIOD)?;
    for layer in &mut config.layers {
        layer.scores.scale = 1.0;
        if layer.scores.window.is_some() {
            layer.rope = Some(RopeConfig::read_sliding(keys, layer.head_dim, SLIDING_BASE)?);
        }
    }
    config.logit_softcap = keys.factor("final_logit_softcapping", Some(LOGIT_CAP))?;
    keys.size("embedding_length_per_layer_input", MAX_WIDTH)?;
    Ok(config)
}

/// Reads for each layer how many deviations above the mean an element of the gate must be to be
/// kept; `None` if all are kept.
fn sparsity(keys: &Keys, layers: usize) -> Result<Vec<Option<f32>>> {
    const KEY: &str = "activation_sparsity_scale";
    let scales = match keys.get(KEY) {
        None => return Ok((0..layers).map(|index| (index < SPARSE_LAYERS).then_some(SPARSITY)).collect()),
        Some(Value::Array(Array::F32(scales))) if scales.len() == layers => scales,
        Some(_) => return Err(keys.error(KEY, format!("is not an array of {layers} floats, one for each layer"))),
    };
    // Converters write the quantile of the share of elements that are cut off, and that of 0 is
    // minus infinity.
    let kept_above = |&scale: &f32| match scale {
        f32::NEG_INFINITY => Ok(None),
        scale if scale.is_finite() => Ok(Some(scale)),
        scale => Err(keys.error(KEY, format!("has {scale}, but must have finite numbers or minus infinity"))),
    };
    scales.iter().map(kept_above).collect()
}

/// Returns the active stream `x` after the attention of layer `index` and the product beside it.
fn attention(
    config: &Config,
    layer: &LayerConfig,
    sizes: &Gemma4Sizes,
    graph: &mut ModelBuilder,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let &Config { hidden, rms_eps, .. } = config;
    let normed = graph.rms_norm(x, &name("attn_norm"), hidden, rms_eps)?;
    let output = gemma4::attention(config, layer, sizes, graph, normed, index)?;
    let output = graph.rms_norm(output, &name("post_attention_norm"), hidden, rms_eps)?;
    let after = graph.ops.add(x, output);

    let rank = graph.rows(&name("laurel_l.weight")).unwrap_or(1);
    let low = graph.linear(normed, &name("laurel_l"), rank, hidden)?;
    let low = graph.linear(low, &name("laurel_r"), hidden, rank)?;
    let low = graph.rms_norm(low, &name("laurel_post_norm"), hidden, rms_eps)?;
    let beside = graph.ops.add(normed, low);
    let sum = graph.ops.add(after, beside);
    Ok(graph.scale(sum, std::f32::consts::FRAC_1_SQRT_2))
}

/// Returns the active stream `x` after the feed-forward network of layer `index`, which keeps only
/// elements of the gate above `sparsity`, if there is one.
fn feed_forward(
    config: &Config,
    layer: &LayerConfig,
    sparsity: Option<f32>,
    graph: &mut ModelBuilder,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    const ACTIVATION: Activation = Activation::Gelu;
    let name = |part: &str| format!("blk.{index}.{part}");
    let (&Config { hidden, rms_eps, .. }, ffn) = (config, layer.ffn);
    let normed = graph.rms_norm(x, &name("ffn_norm"), hidden, rms_eps)?;
    let output = match sparsity {
        None => {
            let network = FeedForward { hidden, ffn, activation: ACTIVATION, gated: true };
            graph.feed_forward(normed, &name("ffn"), network)?
        }
        Some(deviations) => {
            let [gate, up] = [name("ffn_gate"), name("ffn_up")];
            let projections = [&gate, &up].map(|name| Projection { name, rows: ffn });
            let [gate, up] = graph.linears(normed, &up, projections, hidden)?;
            let gate = largest(graph, gate, ffn, deviations);
            let gate = graph.ops.activate(ACTIVATION, gate);
            let product = graph.ops.mul(gate, up);
            graph.linear(product, &name("ffn_down"), hidden, ffn)?
        }
    };
    let output = graph.rms_norm(output, &name("post_ffw_norm"), hidden, rms_eps)?;
    Ok(graph.ops.add(x, output))
}

/// Returns `max(x - mean - deviations * deviation, 0)` of each row's mean and standard deviation.
fn largest(graph: &mut ModelBuilder, x: ValueId, width: usize, deviations: f32) -> ValueId {
    let [ones, cut] = [1.0, -deviations].map(|number| graph.ops.constant(vec![number; width]));
    let above = graph.ops.layer_norm(x, [ones, cut], LEAST_VARIANCE);
    let above = graph.ops.activate(Activation::Relu, above);
    let deviation = graph.ops.deviation(x, true);
    graph.ops.mix_streams(above, deviation, 1)
}
