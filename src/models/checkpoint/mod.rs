//! A checkpoint of transformers in; what a GGUF file of the same model would hold out.
//!
//! Each family says in one table ([`Checkpoint`]) what the converter to GGUF says in code: how `config.json` names what
//! GGUF has a key for, which of its settings are not built, and how the tensors are called. Nothing past this module knows
//! of checkpoints. The bytes of tensors stay mapped where they lie; only norms that are stored less one, and divisors of
//! rotary frequencies, which a checkpoint does not hold, are made in memory.
//!
//! The tables follow `configuration_*.py` and `modeling_*.py` of transformers 5. Whatever a family's code there reads from
//! the config is in its table; what it does not read means nothing there either.

mod config;
mod rope;
mod tensors;

use std::path::Path;

pub(super) use config::Settings;
use serde_json::Value as Json;

use super::{FAMILIES, Family, unbuilt};
use crate::{
    Error, Result,
    gguf::{Gguf, TensorInfo, Value},
    safetensors::Directory,
};

/// How transformers stores the models of a family.
#[derive(Debug)]
pub(super) struct Checkpoint {
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
    pub derived: fn(&Settings, &[TensorInfo]) -> Result<Vec<(&'static str, Value)>>,
}

/// The error in the words of the directory at `path`: what is wrong with what was made of a checkpoint of the `family` is
/// wrong with the checkpoint.
pub(super) fn reword(family: &Family, path: &Path, error: Error) -> Error {
    let ways = || family.checkpoints.iter();
    match error {
        Error::Metadata { key, what } => match ways().find_map(|checkpoint| checkpoint.setting_for(&key)) {
            Some(name) => Error::InvalidFile { path: path.join("config.json"), what: format!("`{name}` {what}") },
            None => Error::Metadata { key, what },
        },
        Error::Tensor { tensor, what } => {
            let name = ways().find_map(|checkpoint| checkpoint.name_of(&tensor));
            Error::Tensor { tensor: name.unwrap_or(tensor), what }
        }
        other => other,
    }
}

impl Checkpoint {
    /// The setting that a key of GGUF comes from.
    fn setting_for(&self, key: &str) -> Option<&'static str> {
        let (_architecture, key) = key.split_once('.')?;
        let own = self.settings().find(|setting| setting.means.gguf_key() == Some(key));
        own.map(|setting| setting.name).or_else(|| rope::setting_for(key))
    }
}

/// A key of the config.
#[derive(Debug)]
pub(super) struct Key {
    pub name: &'static str,
    pub means: Means,
}

/// What becomes of a key of the config.
#[derive(Debug)]
pub(super) enum Means {
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
    fn gguf_key(&self) -> Option<&'static str> {
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
pub(super) enum Need<T> {
    Required,
    Or(T),
    Optional,
}

/// A tensor of the checkpoint without `.weight` or `.bias`, if it ends so; within a layer, without the layer. A `*` stands
/// for the number of an expert: all of them are one tensor of GGUF, a stack in pieces that stay where they lie.
#[derive(Debug)]
pub(super) struct Tensor {
    pub name: &'static str,
    /// What GGUF calls it, without the same suffix.
    pub gguf: &'static str,
    pub made: Made,
}

/// How GGUF's tensor is made of the checkpoint's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Made {
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

pub(super) const fn key(name: &'static str, means: Means) -> Key {
    Key { name, means }
}

/// A whole number, which GGUF has under the key `gguf`.
pub(super) const fn size(name: &'static str, gguf: &'static str, need: Need<u32>) -> Key {
    key(name, Means::Size(gguf, need))
}

/// A float, which GGUF has under the key `gguf`.
pub(super) const fn float(name: &'static str, gguf: &'static str, need: Need<f32>) -> Key {
    key(name, Means::Float(gguf, need))
}

/// A setting that the family checks: what is wrong with it, if anything.
pub(super) const fn check(name: &'static str, wrong: fn(&Json) -> Option<String>) -> Key {
    key(name, Means::Check(wrong))
}

/// A setting that must be one of these, as JSON writes them but without quotes, or absent.
pub(super) const fn only(name: &'static str, values: &'static [&'static str]) -> Key {
    key(name, Means::Only(values))
}

/// Whether these parts of each layer have biases.
const fn biases(name: &'static str, parts: &'static [&'static str]) -> Key {
    key(name, Means::Biases(parts))
}

/// A tensor that is in GGUF as it is in the checkpoint.
pub(super) const fn tensor(name: &'static str, gguf: &'static str) -> Tensor {
    Tensor { name, gguf, made: Made::AsIs }
}

/// A norm's weights, stored less one.
pub(super) const fn less_one(name: &'static str, gguf: &'static str) -> Tensor {
    Tensor { name, gguf, made: Made::PlusOne }
}

/// A tensor of which GGUF's is made.
pub(super) const fn made(name: &'static str, gguf: &'static str, made: Made) -> Tensor {
    Tensor { name, gguf, made }
}

/// The sizes and constants that every family has. How many tokens there are is the embedding's to say.
pub(super) const SIZES: &[Key] = &[
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
pub(super) const EXPERTS: &[Key] = &[
    size("num_experts", "expert_count", Need::Optional),
    size("num_local_experts", "expert_count", Need::Optional),
    size("num_experts_per_tok", "expert_used_count", Need::Required),
    size("moe_intermediate_size", "expert_feed_forward_length", Need::Optional),
];

/// A feed-forward gated by SiLU.
pub(super) const SILU: &[Key] = &[only("hidden_act", &["silu", "swish"])];

/// Biases where two settings ask for them.
pub(super) const BIASES: &[Key] = &[
    biases("attention_bias", &["attn_q", "attn_k", "attn_v", "attn_output"]),
    biases("mlp_bias", &["ffn_gate", "ffn_up", "ffn_down"]),
];

/// Attention to all that came before.
pub(super) const FULL_ATTENTION: &[Key] =
    &[only("use_sliding_window", &["false"]), check("layer_types", layers_are_full)];

fn layers_are_full(types: &Json) -> Option<String> {
    let other = types.as_array()?.iter().find(|kind| *kind != "full_attention")?;
    Some(format!("has {other}, which is not built yet for this architecture: full_attention is"))
}

/// The tensors of a decoder whose layers are those of `block`.
pub(super) const TENSORS: &[Tensor] = &[
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

/// The model at `path`, in GGUF's terms: a GGUF file, or a directory of safetensors as transformers writes it.
///
/// # Errors
/// [`Error::Io`] and [`Error::InvalidFile`] for the files, where the latter
/// also says what of `config.json` is not built; [`Error::Architecture`] for the directory of a
/// family that is not built, [`Error::Tensor`] for a tensor in a format that is not computed on.
pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
    let path = path.as_ref();
    if path.is_dir() { open_directory(path) } else { Gguf::open(path) }
}

/// As [`open`] for a directory.
pub(crate) fn open_directory(path: &Path) -> Result<Gguf> {
    let directory = Directory::open(path)?;
    let settings = Settings::new(&directory)?;
    let (family, checkpoint) = find(settings.model_type()?)?;
    let mut keys = vec![("general.architecture".to_owned(), Value::String(family.architecture.into()))];
    if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
        keys.push(("general.name".into(), Value::String(name.into())));
    }
    let key = |(key, value): (&str, Value)| (format!("{}.{key}", family.architecture), value);
    let mut tensors = tensors::translate(&directory.tensors, checkpoint, &settings)?;
    let mut own = settings.keys(checkpoint)?;
    own.extend((checkpoint.derived)(&settings, &tensors)?);
    let rope = rope::read(&settings, checkpoint, &own)?;
    keys.extend(own.into_iter().chain(rope.keys).map(key));
    if checkpoint.permuted {
        keys.push(key(("tensor_data_layout", Value::String("reference".into()))));
    }
    settings.check_vocabulary(&tensors)?;
    settings.check_biases(checkpoint, &tensors)?;
    tensors.extend(rope.divisors);
    keys.extend(directory.tokenizer);
    Gguf::translated(path, keys, tensors)
}

fn find(model_type: &str) -> Result<(&'static Family, &'static Checkpoint)> {
    let all = FAMILIES.iter().flat_map(|family| family.checkpoints.iter().map(move |checkpoint| (family, *checkpoint)));
    let found = all.clone().find(|(_, checkpoint)| checkpoint.model_types.contains(&model_type));
    found.ok_or_else(|| {
        let types: Vec<_> = all.flat_map(|(_, checkpoint)| checkpoint.model_types).copied().collect();
        unbuilt(model_type, &types)
    })
}
