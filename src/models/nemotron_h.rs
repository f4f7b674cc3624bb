//! Nemotron-H ([NVIDIA 2025](https://arxiv.org/abs/2504.03624)) and Nemotron 3 with experts: each
//! layer is one of a Mamba-2, attention without rotation, or a feed-forward network of squared ReLU
//! without a gate, which experts of the same kind may replace.

use super::{
    Config, LayerConfig, Model,
    block::Block,
    config::{Conventions, NormKind},
    experts::{Choice, Experts, Mixture, shared_width},
    keys::Keys,
    mamba::Mamba,
    model_builder::ModelBuilder,
    mtp::{self, LastNorm},
};
use crate::{
    Result,
    graph::{Activation, ExpertScore, ExpertsSpec, ValueId},
};

const BLOCK: Block = Block { activation: Activation::SquaredRelu, gated: false, ..Block::DECODER };

/// The epsilon of the head's last norm, and of RMS norms in files without theirs.
const EPS: &str = "attention.layer_norm_epsilon";

/// Files have two epsilons, of which the other may be absent.
const CONVENTIONS: Conventions = Conventions { norm: NormKind::Layer, has_other_layers: true, ..Conventions::COMMON };

const MIXTURE: Mixture = Mixture {
    width: |ffn, top_k| ffn / top_k,
    score: Choice::Always(ExpertScore::Sigmoid),
    normalized: Choice::Unless(false),
    grouped: true,
    shared: |keys, _, _| shared_width(keys),
    ..Mixture::SIGMOID
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys)?;
    // Only models with experts have heads for multi-token prediction.
    config.mtp = None;
    model(keys, config, graph)
}

pub(super) fn build_moe(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys)?;
    config.require_experts(keys, &MIXTURE)?;
    model(keys, config, graph)
}

fn config(keys: &Keys) -> Result<Config> {
    let mut config = Config::read_as(keys, &CONVENTIONS)?;
    config.norm = NormKind::Rms;
    if let Some(eps) = keys.optional_float("attention.layer_norm_rms_epsilon", 0.0..1.0)? {
        config.rms_eps = eps;
    }
    config.split_mtp(keys)?;
    config.layers.iter_mut().chain(&mut config.mtp).for_each(|layer| layer.rope = None);
    Ok(config)
}

fn model(keys: &Keys, config: Config, mut graph: ModelBuilder) -> Result<Model> {
    let mamba = Mamba::read(keys)?;
    mtp::refuse_alone(&graph, &config)?;
    let mut x = graph.embedding(&config)?;
    for (index, layer) in config.layers.iter().enumerate() {
        let normed = graph.norm(x, &format!("blk.{index}.attn_norm"), &config)?;
        let output = match (layer.ffn, layer.kv_heads) {
            (0, 0) => mamba.layer(&mut graph, &config, normed, index)?,
            (0, _) => BLOCK.attention(&config, layer, &mut graph, normed, index)?,
            _ => feed_forward(&mut graph, keys, &config, layer, normed, index)?,
        };
        x = graph.ops.add(x, output);
    }
    // The head's layer has both attention and experts.
    let add_layer = |graph: &mut ModelBuilder, config: &Config, layer: &LayerConfig, x, index| {
        let normed = graph.norm(x, &format!("blk.{index}.attn_norm"), config)?;
        let output = BLOCK.attention(config, layer, graph, normed, index)?;
        let x = graph.ops.add(x, output);
        let normed = graph.norm(x, &format!("blk.{index}.post_attention_norm"), config)?;
        let output = feed_forward(graph, keys, config, layer, normed, index)?;
        Ok(graph.ops.add(x, output))
    };
    let norm = LastNorm { kind: NormKind::Layer, eps: keys.float(EPS, 0.0..1.0, None)? };
    mtp::finish_with(graph, config, x, &add_layer, norm)
}

/// Returns the result of the feed-forward network, or of the experts, of layer `index` over the
/// normed rows `x`.
fn feed_forward(
    graph: &mut ModelBuilder,
    keys: &Keys,
    config: &Config,
    layer: &LayerConfig,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let Some(experts) = &layer.experts else {
        return graph.feed_forward(x, &name("ffn"), BLOCK.network(config, layer));
    };
    // Experts may read and write a latent, which is narrower than the rows.
    let latent = keys.optional_size("moe_latent_size", config.hidden)?;
    let input = match latent {
        Some(width) => graph.linear(x, &name("ffn_latent_down"), width, config.hidden)?,
        None => x,
    };
    let mut routed = routed(graph, config, experts, [x, input], latent.unwrap_or(config.hidden), index)?;
    if let Some(width) = latent {
        routed = graph.linear(routed, &name("ffn_latent_up"), config.hidden, width)?;
    }
    let Some(shared) = experts.shared else { return Ok(routed) };
    let up = graph.linear(x, &name("ffn_up_shexp"), shared.ffn, config.hidden)?;
    let up = graph.ops.activate(Activation::SquaredRelu, up);
    let shared = graph.linear(up, &name("ffn_down_shexp"), config.hidden, shared.ffn)?;
    Ok(graph.ops.add(routed, shared))
}

/// Returns the sum of the experts that the router selects by the rows `x`, over the rows `input` of
/// `width` elements.
fn routed(
    graph: &mut ModelBuilder,
    config: &Config,
    experts: &Experts,
    [x, input]: [ValueId; 2],
    width: usize,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let &Experts { count, top_k, ffn, router, .. } = experts;
    let logits = graph.linear(x, &name("ffn_gate_inp"), count, config.hidden)?;
    let bias = graph.weight(&name("exp_probs_b.bias"), 1, count)?;
    let weights = graph.ops.route_with(logits, Some(bias), router);
    let up = graph.stack(&name("ffn_up_exps.weight"), count, ffn, width)?;
    let down = graph.stack(&name("ffn_down_exps.weight"), count, width, ffn)?;
    // max(u, 0)^2 = max(u, 0) u, so the gate is up itself.
    let spec = ExpertsSpec { experts: count, top_k, glu: Activation::Relu.into(), biased: false };
    Ok(graph.ops.experts(input, weights, &[up, up, down], spec))
}
