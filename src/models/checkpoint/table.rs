//! What a family says of its checkpoints: how `config.json` names what GGUF has a key for, which of its settings are not
//! built, and how the tensors are called.

use serde_json::Value as Json;

use super::Settings;
use crate::{
    Result,
    gguf::{TensorInfo, Value},
};

/// Keys of GGUF without the architecture's name, and their values.
pub(in crate::models) type KeyValues = Vec<(&'static str, Value)>;

/// How transformers stores the models of a family.
#[derive(Debug)]
pub(in crate::models) struct Checkpoint {
    /// The `model_type`s that are wired so.
    pub model_types: &'static [&'static str],
    /// The config; of several rows with one name the first counts.
    pub config: &'static [&'static [Key]],
    /// The tensors; of several rows with one name the first counts.
    pub tensors: &'static [&'static [Tensor]],
    /// Whether the embedding is the head's matrix where the config does not say.
    pub tied: bool,
    /// `rope_theta` where the config does not say.
    pub rope_theta: f64,
    /// The same for layers with a window, where theirs is another.
    pub rope_theta_of_windows: Option<f32>,
    /// How much of a head is rotated where the config does not say; where this does not either all of it is, and nothing
    /// else is built.
    pub partial_rotary_factor: Option<f64>,
    /// Whether the converter lays out heads in another way.
    pub permuted: bool,
    /// What GGUF has keys for and the config says in a way of its own, without the architecture's name; and whether the
    /// tensors, by GGUF's names, are as the config says.
    pub derived: fn(&Settings, &[TensorInfo]) -> Result<KeyValues>,
}

/// A key of the config.
#[derive(Debug)]
pub(in crate::models) struct Key {
    pub name: &'static str,
    pub means: Means,
}

/// What becomes of a key of the config.
#[derive(Debug)]
pub(in crate::models) enum Means {
    /// A whole number, which GGUF has under this key; the default where the config has none.
    Size(&'static str, Need<u32>),
    /// A float, likewise.
    Float(&'static str, Need<f32>),
    /// A yes or no, likewise; this where the config does not say.
    Flag(&'static str, bool),
    /// A float, the root of which GGUF has inverted; the default where the config has none.
    InverseRoot(&'static str, f32),
    /// A float, where null stands for none, which GGUF has as 0; the default where the config does not say.
    Cap(&'static str, f32),
    /// For each layer its kind: this one, which GGUF has as true, or `full_attention`.
    Kinds(&'static str, &'static str),
    /// It must be one of these, as JSON writes them but without quotes, or absent.
    Only(&'static [&'static str]),
    /// Whether these parts of each layer have biases, which they must then have all, and else none.
    Biases(&'static [&'static str]),
    /// What the family derives of it GGUF has under this key.
    Derived(&'static str),
    /// Something else that the family requires of the value, if it is there: what is wrong with it.
    Check(fn(&Json) -> Option<String>),
}

impl Means {
    /// The key of GGUF that it becomes, without the architecture's name.
    pub(super) fn gguf_key(&self) -> Option<&'static str> {
        match *self {
            Self::Size(key, _)
            | Self::Float(key, _)
            | Self::Flag(key, _)
            | Self::InverseRoot(key, _)
            | Self::Cap(key, _)
            | Self::Derived(key)
            | Self::Kinds(key, _) => Some(key),
            Self::Only(_) | Self::Biases(_) | Self::Check(_) => None,
        }
    }
}

/// Whether the config must have a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) enum Need<T> {
    Required,
    Or(T),
    Optional,
}

/// A tensor of the checkpoint without `.weight` or `.bias`, if it ends so; within a layer, without the layer. A `*` stands
/// for the number of an expert: all of them are one tensor of GGUF, a stack in pieces that stay where they lie.
#[derive(Debug)]
pub(in crate::models) struct Tensor {
    pub name: &'static str,
    /// What GGUF calls it, without the same suffix.
    pub gguf: &'static str,
    pub made: Made,
}

/// How GGUF's tensor is made of the checkpoint's.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) enum Made {
    AsIs,
    /// One is added to each element.
    PlusOne,
    /// Each element is a logarithm, and GGUF has the negative.
    MinusExp,
    /// A kernel for each channel, `[channels, 1, taps]`, which GGUF has as `[channels, taps]`.
    Kernel,
}

impl Checkpoint {
    /// A decoder whose layers are those of `block`, with what most families have in common.
    pub const DECODER: Self = Self {
        model_types: &[],
        config: &[SIZES, SILU, FULL_ATTENTION],
        tensors: &[TENSORS],
        tied: false,
        rope_theta: 10_000.0,
        rope_theta_of_windows: None,
        partial_rotary_factor: None,
        permuted: false,
        derived: |_, _| Ok(vec![]),
    };
}

pub(in crate::models) const fn key(name: &'static str, means: Means) -> Key {
    Key { name, means }
}

/// A whole number, which GGUF has under the key `gguf`.
pub(in crate::models) const fn size(name: &'static str, gguf: &'static str, need: Need<u32>) -> Key {
    key(name, Means::Size(gguf, need))
}

/// A float, which GGUF has under the key `gguf`.
pub(in crate::models) const fn float(name: &'static str, gguf: &'static str, need: Need<f32>) -> Key {
    key(name, Means::Float(gguf, need))
}

/// A setting that the family checks: what is wrong with it, if anything.
pub(in crate::models) const fn check(name: &'static str, wrong: fn(&Json) -> Option<String>) -> Key {
    key(name, Means::Check(wrong))
}

/// A setting that must be one of these, as JSON writes them but without quotes, or absent.
pub(in crate::models) const fn only(name: &'static str, values: &'static [&'static str]) -> Key {
    key(name, Means::Only(values))
}

/// Whether these parts of each layer have biases.
const fn biases(name: &'static str, parts: &'static [&'static str]) -> Key {
    key(name, Means::Biases(parts))
}

/// A tensor that is in GGUF as it is in the checkpoint.
pub(in crate::models) const fn tensor(name: &'static str, gguf: &'static str) -> Tensor {
    Tensor { name, gguf, made: Made::AsIs }
}

/// A norm's weights, stored less one.
pub(in crate::models) const fn less_one(name: &'static str, gguf: &'static str) -> Tensor {
    Tensor { name, gguf, made: Made::PlusOne }
}

/// A tensor of which GGUF's is made.
pub(in crate::models) const fn made(name: &'static str, gguf: &'static str, made: Made) -> Tensor {
    Tensor { name, gguf, made }
}

/// The sizes and constants that every family has. How many tokens there are is the embedding's to say.
pub(in crate::models) const SIZES: &[Key] = &[
    size("num_hidden_layers", "block_count", Need::Required),
    size("hidden_size", "embedding_length", Need::Required),
    size("intermediate_size", "feed_forward_length", Need::Required),
    size("num_attention_heads", "attention.head_count", Need::Required),
    size("num_key_value_heads", "attention.head_count_kv", Need::Optional),
    size("head_dim", "attention.key_length", Need::Optional),
    size("max_position_embeddings", "context_length", Need::Required),
    float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-6)),
];

/// How many experts there are, of which kind, and how many of them a token goes through.
pub(in crate::models) const EXPERTS: &[Key] = &[
    size("num_experts", "expert_count", Need::Optional),
    size("num_local_experts", "expert_count", Need::Optional),
    size("num_experts_per_tok", "expert_used_count", Need::Required),
    size("moe_intermediate_size", "expert_feed_forward_length", Need::Optional),
];

/// A feed-forward gated by SiLU.
pub(in crate::models) const SILU: &[Key] = &[only("hidden_act", &["silu", "swish"])];

/// Biases where two settings ask for them.
pub(in crate::models) const BIASES: &[Key] = &[
    biases("attention_bias", &["attn_q", "attn_k", "attn_v", "attn_output"]),
    biases("mlp_bias", &["ffn_gate", "ffn_up", "ffn_down"]),
];

/// Attention to all that came before.
pub(in crate::models) const FULL_ATTENTION: &[Key] =
    &[only("use_sliding_window", &["false"]), check("layer_types", layers_are_full)];

fn layers_are_full(types: &Json) -> Option<String> {
    let other = types.as_array()?.iter().find(|kind| *kind != "full_attention")?;
    Some(format!("has {other}, which is not built yet for this architecture: full_attention is"))
}

/// The tensors of a decoder whose layers are those of `block`.
pub(in crate::models) const TENSORS: &[Tensor] = &[
    tensor("embed_tokens", "token_embd"),
    tensor("norm", "output_norm"),
    tensor("lm_head", "output"),
    tensor("input_layernorm", "attn_norm"),
    tensor("self_attn.q_proj", "attn_q"),
    tensor("self_attn.k_proj", "attn_k"),
    tensor("self_attn.v_proj", "attn_v"),
    tensor("self_attn.o_proj", "attn_output"),
    tensor("self_attn.q_norm", "attn_q_norm"),
    tensor("self_attn.k_norm", "attn_k_norm"),
    tensor("post_attention_layernorm", "ffn_norm"),
    tensor("mlp.gate_proj", "ffn_gate"),
    tensor("mlp.up_proj", "ffn_up"),
    tensor("mlp.down_proj", "ffn_down"),
];
