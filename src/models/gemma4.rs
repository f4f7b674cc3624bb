//! Gemma 4 ([Gemma Team 2026](https://ai.google.dev/gemma/docs/core)), text: Gemma 3 with heads of
//! two sizes, norms of values, and layers that read the cache of an earlier layer. Some models have
//! an embedding of the token for each layer, and some have experts in parallel with each
//! feed-forward network.

use super::{
    Checkpoint, Config, Experts, LayerConfig, Model, RopeConfig,
    block::{Block, HeadNorms},
    checkpoint::{BIASES, Meaning, Need, SIZES, TENSORS, one_of, setting, size, tensor},
    config::{HeadDimKeys, PATTERN, optional_head_dim},
    experts::Mixture,
    gemma,
    gemma3::SLIDING_BASE,
    gemma4_layers,
    keys::{Keys, MAX_WIDTH},
    model_builder::ModelBuilder,
};
use crate::{
    Result,
    graph::{Activation, LayerCache, ValueId},
};

const BLOCK: Block =
    Block { head_norms: HeadNorms::Each, post_norms: true, activation: Activation::Gelu, ..Block::DECODER };

/// The widths of E2B and E4B, in which the rows of an image see only the rows before them.
const CAUSAL_WIDTHS: [usize; 2] = [1536, 2560];

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["gemma4_text"],
    settings: &[
        &[
            setting("head_dim", Meaning::Derived("attention.key_length_swa")),
            setting("global_head_dim", Meaning::Derived("attention.key_length")),
            setting("num_key_value_heads", Meaning::Derived("attention.head_count_kv")),
            setting("intermediate_size", Meaning::Derived("feed_forward_length")),
            setting("num_experts", Meaning::Derived("expert_count")),
            setting("top_k_experts", Meaning::Derived("expert_used_count")),
            setting("moe_intermediate_size", Meaning::Derived("expert_feed_forward_length")),
            size("max_position_embeddings", "context_length", Need::Or(131_072)),
            size("sliding_window", "attention.sliding_window", Need::Or(512)),
            setting("layer_types", Meaning::Kinds(PATTERN, "sliding_attention")),
            size("num_kv_shared_layers", "attention.shared_kv_layers", Need::Or(0)),
            size("hidden_size_per_layer_input", "embedding_length_per_layer_input", Need::Or(256)),
            setting("final_logit_softcapping", Meaning::Cap("final_logit_softcapping", 0.0)),
            one_of("hidden_activation", &["gelu_pytorch_tanh"]),
            // `vision` makes attention bidirectional for images only.
            one_of("use_bidirectional_attention", &["vision"]),
        ],
        SIZES,
        BIASES,
    ],
    tensors: &[
        &[
            tensor("post_attention_layernorm", "post_attention_norm"),
            tensor("pre_feedforward_layernorm", "ffn_norm"),
            tensor("post_feedforward_layernorm", "post_ffw_norm"),
            tensor("layer_scalar", "layer_output_scale.weight"),
            tensor("embed_tokens_per_layer", "per_layer_token_embd"),
            tensor("per_layer_model_projection", "per_layer_model_proj"),
            tensor("per_layer_projection_norm", "per_layer_proj_norm"),
            tensor("per_layer_input_gate", "inp_gate"),
            tensor("per_layer_projection", "proj"),
            tensor("post_per_layer_input_norm", "post_norm"),
            tensor("router.proj", "ffn_gate_inp"),
            tensor("router.scale", "ffn_gate_inp.scale"),
            tensor("router.per_expert_scale", "ffn_down_exps.scale"),
            tensor("experts.gate_up_proj", "ffn_gate_up_exps.weight"),
            tensor("experts.down_proj", "ffn_down_exps.weight"),
            tensor("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
            tensor("post_feedforward_layernorm_1", "post_ffw_norm_1"),
            tensor("post_feedforward_layernorm_2", "post_ffw_norm_2"),
        ],
        TENSORS,
    ],
    tied: true,
    rope_theta: 1_000_000.0,
    sliding_rope_theta: Some(SLIDING_BASE),
    derived: gemma4_layers::keys,
    ..Checkpoint::DECODER
};

/// The sizes that only Gemma 3n and 4 have.
pub(super) struct Gemma4Sizes {
    /// The number of layers that compute keys and values. Each later layer reads the cache of the
    /// last of them that is of its kind.
    pub kv_layers: usize,
    /// The width of a token's embedding for one layer; 0 if the model has none.
    pub layer_input: usize,
}

pub(super) fn build(keys: &Keys, mut graph: ModelBuilder) -> Result<Model> {
    let mut config = config(keys)?;
    let sizes = sizes(keys, &mut config, 0)?;
    let mut x = graph.embedding(&config)?;
    let inputs = if sizes.layer_input > 0 { Some(layer_inputs(&config, &sizes, &mut graph, x)?) } else { None };
    for (index, layer) in config.layers.iter().enumerate() {
        let normed = graph.rms_norm(x, &format!("blk.{index}.attn_norm"), config.hidden, config.rms_eps)?;
        let output = attention(&config, layer, &sizes, &mut graph, normed, index)?;
        x = BLOCK.add_residual(&config, &mut graph, x, output, &format!("blk.{index}.post_attention_norm"))?;
        x = match &layer.experts {
            Some(experts) => mixture(&config, layer, experts, &mut graph, x, index)?,
            None => BLOCK.feed_forward(&config, layer, &mut graph, x, index)?,
        };
        if let Some(inputs) = inputs {
            let input = layer_input(&config, &sizes, &mut graph, x, inputs, index)?;
            x = graph.ops.add(x, input);
        }
        if let Some(scale) = graph.optional_weight(&format!("blk.{index}.layer_output_scale.weight"), 1, 1)? {
            x = graph.ops.mul(x, scale);
        }
    }
    graph.finish(config, x)
}

fn config(keys: &Keys) -> Result<Config> {
    const SLIDING: HeadDimKeys =
        HeadDimKeys { key_length: "attention.key_length_swa", value_length: Some("attention.value_length_swa") };
    let mut config = gemma::config(keys)?;
    let window = keys.required("attention.sliding_window", keys.window()?)?;
    keys.required(PATTERN, keys.has(PATTERN).then_some(()))?;
    config.set_windows(keys, window, config.layers.len())?;
    for layer in &mut config.layers {
        layer.scores.scale = 1.0;
        if layer.scores.window.is_some() {
            layer.head_dim = optional_head_dim(keys, SLIDING)?.unwrap_or(layer.head_dim);
            layer.rope = Some(RopeConfig::read_sliding(keys, layer.head_dim, SLIDING_BASE)?);
        } else {
            layer.rope = layer.rope.map(|rope| RopeConfig { divisors: Some("rope_freqs.weight"), ..rope });
        }
    }
    // As in transformers, no key means no cap; llama.cpp uses a cap of 30 then.
    config.logit_softcap = keys.factor("final_logit_softcapping", None)?;
    config.read_experts(keys, &Mixture::SOFTMAX)?;
    if !CAUSAL_WIDTHS.contains(&config.hidden) {
        config.see_images_whole(keys, |layer| layer.scores.window.is_some());
    }
    Ok(config)
}

/// Reads the sizes. A file that does not say so has `readers` layers that read the cache of an
/// earlier layer.
pub(super) fn sizes(keys: &Keys, config: &mut Config, readers: usize) -> Result<Gemma4Sizes> {
    const SHARED: &str = "attention.shared_kv_layers";
    let count = keys.count(SHARED, config.layers.len() - 1)?;
    let kv_layers = config.layers.len() - if keys.has(SHARED) { count } else { readers };
    let (sources, readers) = config.layers.split_at(kv_layers);
    if let Some(reader) = readers.iter().position(|reader| cache_source(reader, sources).is_none()) {
        let what = format!("leaves layer {} without an earlier layer of its kind to read", kv_layers + reader);
        return Err(keys.error(SHARED, what));
    }
    let layer_input = keys.count("embedding_length_per_layer_input", MAX_WIDTH / config.layers.len())?;
    // Files contain these tensors for layers that do not compute keys and values, too.
    let unused = ["attn_k.", "attn_v.", "attn_k_norm."];
    let readers = kv_layers..config.layers.len();
    config.left_out.extend(readers.flat_map(|index| unused.map(|part| format!("blk.{index}.{part}"))));
    Ok(Gemma4Sizes { kv_layers, layer_input })
}

/// Returns the index of the layer whose cache `reader` reads: the last of `sources` with the same
/// heads and scores.
fn cache_source(reader: &LayerConfig, sources: &[LayerConfig]) -> Option<usize> {
    let kind = |layer: &LayerConfig| (layer.kv_heads, layer.head_dim, layer.scores);
    sources.iter().rposition(|source| kind(source) == kind(reader))
}

/// Returns the result of the attention of layer `index` over the normed rows `x`.
pub(super) fn attention(
    config: &Config,
    layer: &LayerConfig,
    sizes: &Gemma4Sizes,
    graph: &mut ModelBuilder,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let &Config { hidden, rms_eps, .. } = config;
    let &LayerConfig { heads, kv_heads, head_dim, .. } = layer;
    let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);

    let q = graph.linear(x, &name("attn_q"), q_width, hidden)?;
    let q = graph.rms_norm(q, &name("attn_q_norm"), head_dim, rms_eps)?;
    let ([q], scores) = graph.rotate(layer, BLOCK.style, [q])?;
    let attended = if index < sizes.kv_layers {
        let k = graph.linear(x, &name("attn_k"), kv_width, hidden)?;
        // Without a matrix of values, values are the keys before their norm and rotation.
        let v = graph.optional_weight(&name("attn_v.weight"), kv_width, hidden)?;
        let v = v.map_or(k, |v| graph.ops.matmul(x, v));
        let v = graph.unweighted_norm(v, head_dim, rms_eps);
        let k = graph.rms_norm(k, &name("attn_k_norm"), head_dim, rms_eps)?;
        let ([k], _) = graph.rotate(layer, BLOCK.style, [k])?;
        graph.ops.attention([q, k, v], LayerCache { kv_heads, head_dim, keys_only: false }, heads, scores)
    } else {
        // `sizes` has checked that there is a source.
        let source = cache_source(layer, &config.layers[..sizes.kv_layers]).unwrap_or(0);
        graph.ops.shared_attention(q, source, heads, scores)
    };
    graph.linear(attended, &name("attn_output"), hidden, q_width)
}

/// Returns the residual stream `x` after a feed-forward network and a mixture of experts side by
/// side. The router reads a norm of `x` that only it has, and each expert's weight has a scale.
fn mixture(
    config: &Config,
    layer: &LayerConfig,
    experts: &Experts,
    graph: &mut ModelBuilder,
    x: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let &Config { hidden, rms_eps, .. } = config;
    let h = graph.rms_norm(x, &name("ffn_norm"), hidden, rms_eps)?;
    let h = graph.feed_forward(h, &name("ffn"), BLOCK.network(config, layer))?;
    let dense = graph.rms_norm(h, &name("post_ffw_norm_1"), hidden, rms_eps)?;

    let norm = graph.weight(&name("ffn_gate_inp.scale"), 1, hidden)?;
    let h = graph.ops.rms_norm(x, norm, rms_eps);
    let h = graph.scale(h, (hidden as f32).sqrt().recip());
    let logits = graph.linear(h, &name("ffn_gate_inp"), experts.count, hidden)?;
    let weights = graph.ops.route(logits, experts.top_k);
    let scales = graph.weight(&name("ffn_down_exps.scale"), 1, experts.count)?;
    let weights = graph.ops.mul(weights, scales);
    let h = graph.rms_norm(x, &name("pre_ffw_norm_2"), hidden, rms_eps)?;
    let h = graph.experts(h, weights, &name("ffn"), hidden, experts, BLOCK.activation)?;
    let routed = graph.rms_norm(h, &name("post_ffw_norm_2"), hidden, rms_eps)?;

    let output = graph.ops.add(dense, routed);
    BLOCK.add_residual(config, graph, x, output, &name("post_ffw_norm"))
}

/// Returns the additional input of all layers, `[Tokens, layers * layer_input]`: an embedding of
/// the token for each layer, and a projection of the token's embedding `x`.
pub(super) fn layer_inputs(
    config: &Config,
    sizes: &Gemma4Sizes,
    graph: &mut ModelBuilder,
    x: ValueId,
) -> Result<ValueId> {
    let width = config.layers.len() * sizes.layer_input;
    let tokens = graph.ops.tokens();
    let table = graph.weight("per_layer_token_embd.weight", config.vocab_size, width)?;
    let embedded = graph.ops.embed(table, tokens);
    let embedded = graph.scale(embedded, (sizes.layer_input as f32).sqrt());
    let projected = graph.linear(x, "per_layer_model_proj", width, config.hidden)?;
    let projected = graph.scale(projected, (config.hidden as f32).sqrt().recip());
    let projected = graph.rms_norm(projected, "per_layer_proj_norm", sizes.layer_input, config.rms_eps)?;
    let sum = graph.ops.add(projected, embedded);
    Ok(graph.scale(sum, std::f32::consts::FRAC_1_SQRT_2))
}

/// Returns what layer `index` makes of its part of `inputs`, with a gate of `x`.
pub(super) fn layer_input(
    config: &Config,
    sizes: &Gemma4Sizes,
    graph: &mut ModelBuilder,
    x: ValueId,
    inputs: ValueId,
    index: usize,
) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let width = sizes.layer_input;
    let gate = graph.linear(x, &name("inp_gate"), width, config.hidden)?;
    let gate = graph.ops.activate(BLOCK.activation, gate);
    let input = graph.ops.slice(inputs, index * width, width, config.layers.len() * width);
    let h = graph.ops.mul(gate, input);
    let h = graph.linear(h, &name("proj"), config.hidden, width)?;
    graph.rms_norm(h, &name("post_norm"), config.hidden, config.rms_eps)
}
