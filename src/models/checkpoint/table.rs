//! Defines the table of a family's checkpoints: the GGUF key of each setting of `config.json`, and
//! the GGUF name of each tensor.

use serde_json::Value as Json;

use super::Settings;
use crate::{
    Result,
    gguf::{TensorInfo, Value},
};

/// GGUF keys without the architecture's name, and their values.
pub(in crate::models) type KeyValues = Vec<(&'static str, Value)>;

/// The format in which transformers stores models of a family.
#[derive(Debug)]
pub(in crate::models) struct Checkpoint {
    /// The values of `model_type` of this format.
    pub model_types: &'static [&'static str],
    /// The settings of `config.json`. The first of several rows with one name counts.
    pub settings: &'static [&'static [Setting]],
    /// The tensors. The first of several rows with one name counts.
    pub tensors: &'static [&'static [TensorMapping]],
    /// The default of `tie_word_embeddings`: whether the embedding is also the output matrix.
    pub tied: bool,
    /// The default of `rope_theta`.
    pub rope_theta: f64,
    /// The default of `rope_theta` for layers with a sliding window, if they have their own.
    pub sliding_rope_theta: Option<f32>,
    /// The default of `partial_rotary_factor`, the rotated part of a head; `None` if the family
    /// only supports heads that are rotated whole.
    pub partial_rotary_factor: Option<f64>,
    /// Whether the converter to GGUF permutes rows of the family's tensors. Rows stay in the
    /// checkpoint's order here, and a key says so (`tensor_data_layout` = `reference`).
    pub permuted: bool,
    /// Returns further GGUF keys, and checks the tensors (by GGUF name) against the settings.
    pub derived: fn(&Settings, &[TensorInfo]) -> Result<KeyValues>,
}

/// A setting of `config.json`.
#[derive(Debug)]
pub(in crate::models) struct Setting {
    pub name: &'static str,
    pub meaning: Meaning,
}

/// The meaning of a setting. Names of GGUF keys are without the architecture's name.
#[derive(Debug)]
pub(in crate::models) enum Meaning {
    /// An integer, stored under this GGUF key.
    Size(&'static str, Need<u32>),
    /// The side of a square, an integer or a list of two equal integers, stored under this GGUF
    /// key, and its default.
    Side(&'static str, u32),
    /// A float, stored under this GGUF key.
    Float(&'static str, Need<f32>),
    /// A boolean, stored under this GGUF key, and its default.
    Flag(&'static str, bool),
    /// A float, stored under this GGUF key as `1 / sqrt(value)`, and its default.
    InverseRoot(&'static str, f32),
    /// A float, stored under this GGUF key, and its default. The value null is stored as 0.
    Cap(&'static str, f32),
    /// The kind of each layer: this kind, stored under this GGUF key as true, or `full_attention`,
    /// stored as false.
    Kinds(&'static str, &'static str),
    /// A value that must be one of these, written as in JSON without quotes, or be absent.
    OneOf(&'static [&'static str]),
    /// A boolean: whether these parts have biases in all layers. False means in no layer.
    Biases(&'static [&'static str]),
    /// A value from which [`Checkpoint::derived`] makes this GGUF key.
    Derived(&'static str),
    /// A value that the function checks if it is present. The function returns the error, if any.
    Check(fn(&Json) -> Option<String>),
}

impl Meaning {
    /// Returns the GGUF key that is made from the setting.
    pub(super) fn gguf_key(&self) -> Option<&'static str> {
        match *self {
            Self::Size(key, _)
            | Self::Side(key, _)
            | Self::Float(key, _)
            | Self::Flag(key, _)
            | Self::InverseRoot(key, _)
            | Self::Cap(key, _)
            | Self::Derived(key)
            | Self::Kinds(key, _) => Some(key),
            Self::OneOf(_) | Self::Biases(_) | Self::Check(_) => None,
        }
    }
}

/// The handling of a setting that is absent.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) enum Need<T> {
    /// An error.
    Required,
    /// A default value.
    Or(T),
    /// No GGUF key.
    Optional,
}

/// A tensor of the checkpoint, and its GGUF name.
#[derive(Debug)]
pub(in crate::models) struct TensorMapping {
    /// The checkpoint's name, without the prefix of the model and the layer, and without `.weight`
    /// or `.bias`. A `*` stands for the number of an expert: GGUF stacks all experts in one tensor.
    pub name: &'static str,
    /// The GGUF name, without the prefix of the layer and without the same suffix.
    pub gguf: &'static str,
    pub transform: Transform,
}

/// The change of a tensor's elements or shape between the checkpoint and GGUF.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) enum Transform {
    None,
    /// Adds 1 to each element: the checkpoint stores `w - 1`.
    AddOne,
    /// Computes `-exp(x)` of each element: the checkpoint stores a logarithm.
    NegateExp,
    /// Changes the shape of a convolution's kernels from `[channels, 1, taps]` to
    /// `[channels, taps]`.
    FlattenKernel,
    /// Exchanges the last two dimensions of the experts' matrices, `[experts, rows, columns]`, if
    /// the dimension of this number is not the model's width.
    WidthAt(usize),
    /// Leaves out dimensions of length 1.
    Squeeze,
    /// Changes the order of a patch's elements, `[rows, height, width, channels]` in a matrix with
    /// one row for each output, to `[rows, channels, height, width]`.
    ChannelsFirst,
    /// Divides kernels of two frames, `[rows, channels, 2, height, width]`, into a tensor for each
    /// frame. The name of the second has `.1` at its end.
    SplitFrames,
}

impl Checkpoint {
    /// The settings and tensors of a decoder whose layers are `block`s.
    pub const DECODER: Self = Self {
        model_types: &[],
        settings: &[SIZES, SILU, FULL_ATTENTION],
        tensors: &[TENSORS],
        tied: false,
        rope_theta: 10_000.0,
        sliding_rope_theta: None,
        partial_rotary_factor: None,
        permuted: false,
        derived: |_, _| Ok(vec![]),
    };
}

pub(in crate::models) const fn setting(name: &'static str, meaning: Meaning) -> Setting {
    Setting { name, meaning }
}

/// Returns a setting that is an integer, and its GGUF key.
pub(in crate::models) const fn size(name: &'static str, gguf: &'static str, need: Need<u32>) -> Setting {
    setting(name, Meaning::Size(gguf, need))
}

/// Returns a setting that is the side of a square, its GGUF key and its default.
pub(in crate::models) const fn side(name: &'static str, gguf: &'static str, default: u32) -> Setting {
    setting(name, Meaning::Side(gguf, default))
}

/// Returns a setting that is a float, and its GGUF key.
pub(in crate::models) const fn float(name: &'static str, gguf: &'static str, need: Need<f32>) -> Setting {
    setting(name, Meaning::Float(gguf, need))
}

/// Returns a setting that the function `error` checks. It returns the error, if any.
pub(in crate::models) const fn check(name: &'static str, error: fn(&Json) -> Option<String>) -> Setting {
    setting(name, Meaning::Check(error))
}

/// Returns a setting that must be absent or one of `values`, written as in JSON without quotes.
pub(in crate::models) const fn one_of(name: &'static str, values: &'static [&'static str]) -> Setting {
    setting(name, Meaning::OneOf(values))
}

/// Returns a setting that says whether these parts of each layer have biases.
const fn biases(name: &'static str, parts: &'static [&'static str]) -> Setting {
    setting(name, Meaning::Biases(parts))
}

/// Returns a tensor that GGUF stores unchanged.
pub(in crate::models) const fn tensor(name: &'static str, gguf: &'static str) -> TensorMapping {
    TensorMapping { name, gguf, transform: Transform::None }
}

/// Returns a tensor that GGUF stores transformed.
pub(in crate::models) const fn transformed(
    name: &'static str,
    gguf: &'static str,
    transform: Transform,
) -> TensorMapping {
    TensorMapping { name, gguf, transform }
}

/// The sizes and constants of every family. The size of the vocabulary is the embedding's.
pub(in crate::models) const SIZES: &[Setting] = &[
    size("num_hidden_layers", "block_count", Need::Required),
    size("hidden_size", "embedding_length", Need::Required),
    size("intermediate_size", "feed_forward_length", Need::Required),
    size("num_attention_heads", "attention.head_count", Need::Required),
    size("num_key_value_heads", "attention.head_count_kv", Need::Optional),
    size("head_dim", "attention.key_length", Need::Optional),
    size("max_position_embeddings", "context_length", Need::Required),
    float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-6)),
];

/// The sizes of a mixture of experts.
pub(in crate::models) const EXPERTS: &[Setting] = &[
    size("num_experts", "expert_count", Need::Optional),
    size("num_local_experts", "expert_count", Need::Optional),
    size("num_experts_per_tok", "expert_used_count", Need::Required),
    size("moe_intermediate_size", "expert_feed_forward_length", Need::Optional),
];

/// A feed-forward network gated by SiLU.
pub(in crate::models) const SILU: &[Setting] = &[one_of("hidden_act", &["silu", "swish"])];

/// Biases of attention and feed-forward, each with its setting.
pub(in crate::models) const BIASES: &[Setting] = &[
    biases("attention_bias", &["attn_q", "attn_k", "attn_v", "attn_output"]),
    biases("mlp_bias", &["ffn_gate", "ffn_up", "ffn_down"]),
];

/// Attention without a sliding window in every layer.
pub(in crate::models) const FULL_ATTENTION: &[Setting] =
    &[one_of("use_sliding_window", &["false"]), check("layer_types", other_attention)];

/// Returns the error for a list with an entry that is not `full_attention`.
fn other_attention(types: &Json) -> Option<String> {
    let other = types.as_array()?.iter().find(|kind| *kind != "full_attention")?;
    Some(format!("has {other}, but only full_attention is supported for this architecture"))
}

/// The tensors of a decoder whose layers are `block`s.
pub(in crate::models) const TENSORS: &[TensorMapping] = &[
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
