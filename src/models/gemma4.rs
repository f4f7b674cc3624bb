//! Gemma 4 ([Gemma Team 2026](https://ai.google.dev/gemma/docs/core)), text: Gemma 3 with heads of two sizes, norms
//! of values, layers that read the cache of an earlier one, for each layer an embedding of the token of
//! its own, or experts beside each feed-forward.

use super::{
    Checkpoint, Config, Experts, LayerConfig, Model, RopeConfig,
    block::Block,
    checkpoint::{BIASES, Means, Need, SIZES, TENSORS, key, only, size, tensor},
    config::{PATTERN, head_dim_of},
    gemma,
    gemma3::BASE,
    gemma4_layers,
    keys::{Keys, MAX_WIDTH},
    wiring::Wiring,
};
use crate::{
    Result,
    graph::{Activation, LayerCache, RopeStyle, ValueId},
};

const BLOCK: Block =
    Block { style: RopeStyle::Halves, head_norms: true, post_norms: true, activation: Activation::Gelu };

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["gemma4_text"],
    config: &[
        &[
            key("head_dim", Means::Derived("attention.key_length_swa")),
            key("global_head_dim", Means::Derived("attention.key_length")),
            key("num_key_value_heads", Means::Derived("attention.head_count_kv")),
            key("intermediate_size", Means::Derived("feed_forward_length")),
            key("num_experts", Means::Derived("expert_count")),
            key("top_k_experts", Means::Derived("expert_used_count")),
            key("moe_intermediate_size", Means::Derived("expert_feed_forward_length")),
            size("max_position_embeddings", "context_length", Need::Or(131_072)),
            size("sliding_window", "attention.sliding_window", Need::Or(512)),
            key("layer_types", Means::Kinds(PATTERN, "sliding_attention")),
            size("num_kv_shared_layers", "attention.shared_kv_layers", Need::Or(0)),
            size("hidden_size_per_layer_input", "embedding_length_per_layer_input", Need::Or(256)),
            key("final_logit_softcapping", Means::Cap("final_logit_softcapping", 0.0)),
            only("hidden_activation", &["gelu_pytorch_tanh"]),
            // Pictures alone see what follows them.
            only("use_bidirectional_attention", &["vision"]),
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
    rope_theta_of_windows: Some(BASE),
    derived: gemma4_layers::keys,
    ..Checkpoint::DECODER
};

/// What this family has besides.
struct Sizes {
    /// Layers with keys and values of their own; those that follow read the cache of the last of these of their kind.
    own: usize,
    /// Elements of a token's embedding for one layer; 0 where there are none.
    inputs: usize,
}

pub(super) fn build(keys: &Keys, mut w: Wiring) -> Result<Model> {
    let mut config = config(keys)?;
    let sizes = sizes(keys, &config)?;
    // Files have keys and values of these layers all the same.
    let unread = ["attn_k.", "attn_v.", "attn_k_norm."];
    let readers = sizes.own..config.layers.len();
    config.left_out.extend(readers.flat_map(|n| unread.map(|part| format!("blk.{n}.{part}"))));
    let mut x = w.embedding(&config)?;
    let inputs = if sizes.inputs > 0 { Some(layer_inputs(&config, &sizes, &mut w, x)?) } else { None };
    for (n, layer) in config.layers.iter().enumerate() {
        x = attention(&config, layer, &sizes, &mut w, x, n)?;
        x = match &layer.experts {
            Some(experts) => mixture(&config, layer, experts, &mut w, x, n)?,
            None => BLOCK.feed_forward(&config, layer, &mut w, x, n)?,
        };
        if let Some(inputs) = inputs {
            x = add_input(&config, &sizes, &mut w, [x, inputs], n)?;
        }
        if let Some(scale) = w.optional_weight(&format!("blk.{n}.layer_output_scale.weight"), 1, 1)? {
            x = w.builder.mul(x, scale);
        }
    }
    w.finish(config, x)
}

fn config(keys: &Keys) -> Result<Config> {
    let mut config = gemma::config(keys)?;
    let window = keys.required("attention.sliding_window", keys.window()?)?;
    keys.required(PATTERN, keys.has(PATTERN).then_some(()))?;
    config.slide(keys, window, config.layers.len())?;
    for layer in &mut config.layers {
        layer.scores.scale = 1.0;
        if layer.scores.window.is_some() {
            let sizes = head_dim_of(keys, ["attention.key_length_swa", "attention.value_length_swa"])?;
            layer.head_dim = sizes.unwrap_or(layer.head_dim);
            layer.rope = Some(RopeConfig::read_sliding(keys, layer.head_dim, BASE)?);
        } else {
            layer.rope = layer.rope.map(|rope| RopeConfig { divisors: Some("rope_freqs.weight"), ..rope });
        }
    }
    // A file without the key is of a model without the cap, as transformers has it; llama.cpp takes 30 then.
    config.logit_softcap = keys.factor("final_logit_softcapping", None)?;
    config.mix(keys, |ffn, _| ffn)?;
    Ok(config)
}

fn sizes(keys: &Keys, config: &Config) -> Result<Sizes> {
    const SHARED: &str = "attention.shared_kv_layers";
    let own = config.layers.len() - keys.count(SHARED, config.layers.len() - 1)?;
    let (owners, readers) = config.layers.split_at(own);
    if let Some(n) = readers.iter().position(|reader| owner_of(reader, owners).is_none()) {
        return Err(keys.error(SHARED, format!("leaves layer {} without an earlier one of its kind to read", own + n)));
    }
    Ok(Sizes { own, inputs: keys.count("embedding_length_per_layer_input", MAX_WIDTH / config.layers.len())? })
}

/// The last of `owners` whose keys and values are of the kind that `reader` reads.
fn owner_of(reader: &LayerConfig, owners: &[LayerConfig]) -> Option<usize> {
    let kind = |layer: &LayerConfig| (layer.kv_heads, layer.head_dim, layer.scores);
    owners.iter().rposition(|owner| kind(owner) == kind(reader))
}

fn attention(c: &Config, l: &LayerConfig, s: &Sizes, w: &mut Wiring, x: ValueId, n: usize) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{n}.{part}");
    let (q_width, kv_width) = (l.heads * l.head_dim, l.kv_heads * l.head_dim);

    let h = w.rms_norm(x, &name("attn_norm"), c.hidden, c.rms_eps)?;
    let q = w.linear(h, &name("attn_q"), q_width, c.hidden)?;
    let q = w.rms_norm(q, &name("attn_q_norm"), l.head_dim, c.rms_eps)?;
    let ([q], scores) = w.rotated(l, BLOCK.style, [q])?;
    let a = if n < s.own {
        let k = w.linear(h, &name("attn_k"), kv_width, c.hidden)?;
        // Where there is no matrix for values they are the keys, before these are normed and rotated.
        let v = w.optional_weight(&name("attn_v.weight"), kv_width, c.hidden)?;
        let v = v.map_or(k, |v| w.builder.matmul(h, v));
        let ones = w.builder.constant(vec![1.0; l.head_dim]);
        let v = w.builder.rms_norm(v, ones, c.rms_eps);
        let k = w.rms_norm(k, &name("attn_k_norm"), l.head_dim, c.rms_eps)?;
        let ([k], _) = w.rotated(l, BLOCK.style, [k])?;
        let cache = LayerCache { kv_heads: l.kv_heads, head_dim: l.head_dim };
        w.builder.attention([q, k, v], cache, l.heads, scores)
    } else {
        // `sizes` has seen that there is one.
        let owner = owner_of(l, &c.layers[..s.own]).unwrap_or(0);
        w.builder.shared_attention(q, owner, l.heads, scores)
    };
    let a = w.linear(a, &name("attn_output"), c.hidden, q_width)?;
    BLOCK.join(c, w, [x, a], &name("post_attention_norm"))
}

/// A feed-forward and a mixture of experts beside it, both of the residual stream `x`. The router reads a norm of its own,
/// and what an expert comes to has a scale.
fn mixture(c: &Config, l: &LayerConfig, e: &Experts, w: &mut Wiring, x: ValueId, n: usize) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{n}.{part}");
    let h = w.rms_norm(x, &name("ffn_norm"), c.hidden, c.rms_eps)?;
    let h = w.feed_forward(h, &name("ffn"), [c.hidden, l.ffn], BLOCK.activation)?;
    let every = w.rms_norm(h, &name("post_ffw_norm_1"), c.hidden, c.rms_eps)?;

    let norm = w.weight(&name("ffn_gate_inp.scale"), 1, c.hidden)?;
    let h = w.builder.rms_norm(x, norm, c.rms_eps);
    let h = w.scale(h, (c.hidden as f32).sqrt().recip());
    let logits = w.linear(h, &name("ffn_gate_inp"), e.count, c.hidden)?;
    let weights = w.builder.route(logits, e.used);
    let scales = w.weight(&name("ffn_down_exps.scale"), 1, e.count)?;
    let weights = w.builder.mul(weights, scales);
    let h = w.rms_norm(x, &name("pre_ffw_norm_2"), c.hidden, c.rms_eps)?;
    let h = w.experts([h, weights], &name("ffn"), c.hidden, e, BLOCK.activation)?;
    let chosen = w.rms_norm(h, &name("post_ffw_norm_2"), c.hidden, c.rms_eps)?;

    let h = w.builder.add(every, chosen);
    BLOCK.join(c, w, [x, h], &name("post_ffw_norm"))
}

/// What all layers take in of each token besides the residual stream, layer by layer: an embedding of its own, and a
/// projection of the embedding `x` that all share.
fn layer_inputs(c: &Config, s: &Sizes, w: &mut Wiring, x: ValueId) -> Result<ValueId> {
    let width = c.layers.len() * s.inputs;
    let tokens = w.builder.tokens();
    let table = w.weight("per_layer_token_embd.weight", c.vocab_size, width)?;
    let own = w.builder.embed(table, tokens);
    let own = w.scale(own, (s.inputs as f32).sqrt());
    let shared = w.linear(x, "per_layer_model_proj", width, c.hidden)?;
    let shared = w.scale(shared, (c.hidden as f32).sqrt().recip());
    let shared = w.rms_norm(shared, "per_layer_proj_norm", s.inputs, c.rms_eps)?;
    let sum = w.builder.add(shared, own);
    Ok(w.scale(sum, std::f32::consts::FRAC_1_SQRT_2))
}

/// The residual stream `x` with what layer `n` makes of its part of `inputs`.
fn add_input(c: &Config, s: &Sizes, w: &mut Wiring, [x, inputs]: [ValueId; 2], n: usize) -> Result<ValueId> {
    let name = |part: &str| format!("blk.{n}.{part}");
    let gate = w.linear(x, &name("inp_gate"), s.inputs, c.hidden)?;
    let gate = w.builder.activate(BLOCK.activation, gate);
    let input = w.builder.slice(inputs, n * s.inputs, s.inputs, c.layers.len() * s.inputs);
    let h = w.builder.mul(gate, input);
    let h = w.linear(h, &name("proj"), c.hidden, s.inputs)?;
    let h = w.rms_norm(h, &name("post_norm"), c.hidden, c.rms_eps)?;
    Ok(w.builder.add(x, h))
}
