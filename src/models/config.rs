//! Reads a model's sizes and constants from the file's metadata.
//!
//! Files may be hostile: every number is checked against a range here, so that later stages can
//! multiply sizes without overflow.

use super::{
    experts::Experts,
    keys::{Keys, MAX_CONTEXT, MAX_WIDTH},
    rope::RopeConfig,
};
use crate::{
    Error, Result,
    gguf::Gguf,
    graph::{RopeAxes, Scores, Sees, Window},
};

/// The largest sizes that are accepted: above the sizes of every known model, and small enough that
/// the product of two fits 32 bits.
pub(super) const MAX_LAYERS: usize = 1 << 12;
const MAX_HEADS: usize = 1 << 12;
pub(super) const MAX_HEAD_DIM: usize = 1 << 12;

/// The key that lists the layers with a sliding window.
pub(super) const PATTERN: &str = "attention.sliding_window_pattern";

/// A model's sizes and constants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The family, `general.architecture`.
    pub architecture: String,
    /// The model's name, `general.name`.
    pub name: Option<String>,
    /// The width of the residual stream.
    pub hidden: usize,
    /// The number of tokens in the vocabulary: rows of the embedding, and elements of the logits.
    pub vocab_size: usize,
    /// The number of positions that the model was trained for.
    pub context_length: usize,
    /// The number that norms add to the mean square, or to the variance.
    pub rms_eps: f32,
    /// The norms of the residual stream.
    pub norm: NormKind,
    /// The factor of the embedding's rows.
    pub embedding_scale: f32,
    /// The factor of the results of attention and feed-forward in the residual stream.
    pub residual_scale: f32,
    /// The factor of the logits.
    pub logit_scale: f32,
    /// The cap `c` of the logits, which turns a logit `x` into `c tanh(x / c)`.
    pub logit_softcap: Option<f32>,
    /// The number of first layers to which the rows of images add further elements.
    #[doc(hidden)]
    pub deepstack: usize,
    /// Whether rows are in the checkpoint's order (`tensor_data_layout` = `reference`). Converters
    /// to GGUF permute the rows of some families' queries and keys, so that rotary embedding turns
    /// pairs of adjacent elements instead of halves.
    #[doc(hidden)]
    pub reference_layout: bool,
    /// The layers, each of attention and a feed-forward network.
    #[doc(hidden)]
    pub layers: Vec<LayerConfig>,
    /// The layer of the head that predicts the token after the next, if the model has one. It
    /// follows the last layer.
    #[doc(hidden)]
    pub mtp: Option<LayerConfig>,
    /// Prefixes of the names of tensors that the logits do not depend on: tensors of layers that
    /// predict further tokens, and keys and values of layers that read another layer's cache.
    #[doc(hidden)]
    pub left_out: Vec<String>,
}

/// The kind of a model's norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// RMS norms ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)).
    Rms,
    /// Layer norms, with a bias or without ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)).
    Layer,
}

/// The sizes and constants of one layer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerConfig {
    /// The number of query heads.
    pub heads: usize,
    /// The number of key-value heads, a divisor of `heads`; 0 for a layer that is not attention.
    pub kv_heads: usize,
    /// The number of elements in a head; `heads * head_dim` need not be the model's width.
    pub head_dim: usize,
    /// The width between the two halves of the feed-forward network.
    pub ffn: usize,
    /// The experts that replace the feed-forward network, or `None`.
    pub experts: Option<Experts>,
    /// The scale, cap and window of attention's scores, without the attention factor of `rope`.
    pub scores: Scores,
    /// The rotary embedding of queries and keys; `None` for a layer that does not encode positions.
    pub rope: Option<RopeConfig>,
    /// The growth of queries with their position.
    pub temperature: Option<Temperature>,
}

/// The growth of queries with their position, by `1 + scale ln(1 + floor((position + offset) /
/// interval))` ([Nakanishi 2025](https://arxiv.org/abs/2501.19399)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// The factor of the logarithm.
    pub scale: f32,
    /// The number of positions with the same factor.
    pub interval: usize,
    /// The number that is added to a position first.
    pub offset: usize,
}

/// The keys that a family's files have.
#[derive(Clone, Copy)]
pub(super) struct Conventions {
    /// The kind of norm.
    pub norm: NormKind,
    /// Whether files may have other values of YaRN's constants than its paper.
    pub has_yarn_keys: bool,
    /// Whether layers with 0 key-value heads are something else than attention, and layers may have
    /// no feed-forward network.
    pub has_other_layers: bool,
    /// The keys of the width of a head.
    pub head_dim: HeadDimKeys,
}

impl Conventions {
    /// RMS norms, and the keys that most families have.
    pub const COMMON: Self =
        Self { norm: NormKind::Rms, has_yarn_keys: false, has_other_layers: false, head_dim: HeadDimKeys::PLAIN };
}

impl Config {
    /// Reads the keys that all families share. The scales are 1, and every layer has full attention
    /// and rotated heads.
    pub(super) fn read(keys: &Keys) -> Result<Self> {
        Self::read_as(keys, &Conventions::COMMON)
    }

    /// Reads the keys that all families share, by the conventions of a family.
    pub(super) fn read_as(keys: &Keys, conventions: &Conventions) -> Result<Self> {
        let eps = match conventions.norm {
            NormKind::Rms => "attention.layer_norm_rms_epsilon",
            NormKind::Layer => "attention.layer_norm_epsilon",
        };
        if keys.bool("attention.causal")? == Some(false) {
            return Err(keys.error("attention.causal", "is false: only causal models are supported"));
        }
        Ok(Self {
            architecture: keys.architecture.into(),
            name: keys.gguf.str("general.name")?.map(Into::into),
            hidden: hidden(keys)?,
            vocab_size: vocab_size(keys.gguf)?,
            context_length: keys.size("context_length", MAX_CONTEXT)?,
            rms_eps: keys.float(eps, 0.0..1.0, None)?,
            norm: conventions.norm,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            logit_softcap: None,
            deepstack: 0,
            reference_layout: keys.str("tensor_data_layout")? == Some("reference"),
            layers: layers(keys, conventions)?,
            mtp: None,
            left_out: vec![],
        })
    }

    /// Sets the positions that turn the pairs of all rotated heads, if the model takes images.
    /// `axes` gets the number of pairs that each position turns.
    pub(super) fn set_axes(&mut self, keys: &Keys, axes: fn([u16; 3]) -> RopeAxes) -> Result<()> {
        let layers = self.layers.iter_mut().chain(&mut self.mtp);
        let ropes = layers.filter(|_| keys.images.is_some()).filter_map(|layer| layer.rope.as_mut());
        for rope in ropes {
            rope.axes = axes(RopeConfig::read_sections(keys, rope.dim)?);
        }
        Ok(())
    }

    /// Divides the frequencies of all layers by the elements of `rope_freqs.weight`, if the file
    /// has it.
    pub(super) fn divide_frequencies(&mut self) {
        let ropes = self.layers.iter_mut().chain(&mut self.mtp).filter_map(|layer| layer.rope.as_mut());
        ropes.for_each(|rope| rope.divisors = Some("rope_freqs.weight"));
    }

    /// Lets the rows of an image see each other in the layers for which `layers` returns true, if
    /// the model takes images.
    pub(super) fn see_images_whole(&mut self, keys: &Keys, layers: fn(&LayerConfig) -> bool) {
        let layers = self.layers.iter_mut().filter(|layer| keys.images.is_some() && layers(layer));
        layers.for_each(|layer| layer.scores.sees = Sees::PastAndSpan);
    }

    /// Takes the layers at the end that only predict further tokens from the others. If there is
    /// one, [`mtp`](Self::mtp) has it.
    pub(super) fn split_mtp(&mut self, keys: &Keys) -> Result<()> {
        let blocks = self.layers.len();
        let count = keys.count("nextn_predict_layers", blocks - 1)?;
        let heads = self.layers.split_off(blocks - count);
        self.left_out.extend((blocks - count..blocks).map(|index| format!("blk.{index}.")));
        self.mtp = heads.into_iter().next().filter(|_| count == 1);
        Ok(())
    }

    /// Sets a sliding window of `window` positions in the layers that
    /// `attention.sliding_window_pattern` names; without the key, in all but the last of each
    /// `period` layers.
    pub(super) fn set_windows(&mut self, keys: &Keys, window: usize, period: usize) -> Result<()> {
        let has_window = keys.pattern(PATTERN, self.layers.len(), period)?;
        for (layer, has_window) in self.layers.iter_mut().zip(has_window) {
            layer.scores.window = has_window.then_some(Window::Sliding(window));
        }
        Ok(())
    }
}

fn hidden(keys: &Keys) -> Result<usize> {
    keys.size("embedding_length", MAX_WIDTH)
}

fn layers(keys: &Keys, conventions: &Conventions) -> Result<Vec<LayerConfig>> {
    const HEADS: &str = "attention.head_count";
    const KV_HEADS: &str = "attention.head_count_kv";
    const FFN: &str = "feed_forward_length";
    let count = keys.size("block_count", MAX_LAYERS)?;
    let heads = keys.required(HEADS, keys.per_layer(HEADS, count, MAX_HEADS)?)?;
    let kv_heads = match conventions.has_other_layers {
        true => keys.counts_per_layer(KV_HEADS, count, MAX_HEADS)?,
        false => keys.per_layer(KV_HEADS, count, MAX_HEADS)?,
    };
    let kv_heads = kv_heads.unwrap_or_else(|| heads.clone());
    // Files of models whose feed-forward networks are all experts may lack the key.
    let ffn = match keys.expert_width()? {
        Some(width) if keys.is_zero(FFN) => vec![width; count],
        _ if conventions.has_other_layers => keys.required(FFN, keys.counts_per_layer(FFN, count, MAX_WIDTH)?)?,
        _ => keys.required(FFN, keys.per_layer(FFN, count, MAX_WIDTH)?)?,
    };
    let layer = |index: usize| {
        let (heads, kv_heads) = (heads[index], kv_heads[index]);
        if kv_heads > 0 && !heads.is_multiple_of(kv_heads) {
            return Err(keys.error(KV_HEADS, format!("is {kv_heads}, which does not divide the {heads} query heads")));
        }
        let head_dim = head_dim(keys, conventions.head_dim, heads)?;
        let rope = Some(RopeConfig::read(keys, head_dim, conventions.has_yarn_keys)?);
        let scores = (head_dim as f32).sqrt().recip().into();
        Ok(LayerConfig { heads, kv_heads, head_dim, ffn: ffn[index], experts: None, scores, rope, temperature: None })
    };
    (0..count).map(layer).collect()
}

/// The two keys of a head's width: of its keys, and of its values, which are as wide if there is no
/// such key.
#[derive(Clone, Copy)]
pub(super) struct HeadDimKeys {
    pub key_length: &'static str,
    pub value_length: Option<&'static str>,
}

impl HeadDimKeys {
    const PLAIN: Self = Self { key_length: "attention.key_length", value_length: Some("attention.value_length") };
}

fn head_dim(keys: &Keys, names: HeadDimKeys, heads: usize) -> Result<usize> {
    let hidden = hidden(keys)?;
    match optional_head_dim(keys, names)? {
        Some(head_dim) => Ok(head_dim),
        None if hidden.is_multiple_of(heads) => check_head_dim(keys, names, hidden / heads),
        None => {
            let what = format!("is missing, and {heads} heads do not divide a width of {hidden}");
            Err(keys.error(names.key_length, what))
        }
    }
}

/// Reads the number of elements in a head, or `None` if the file has no such key.
pub(super) fn optional_head_dim(keys: &Keys, names: HeadDimKeys) -> Result<Option<usize>> {
    let head_dim = keys.optional_size(names.key_length, MAX_HEAD_DIM)?;
    head_dim.map(|head_dim| check_head_dim(keys, names, head_dim)).transpose()
}

fn check_head_dim(keys: &Keys, names: HeadDimKeys, head_dim: usize) -> Result<usize> {
    let head_dim = keys.check_size(names.key_length, head_dim, MAX_HEAD_DIM)?;
    if !head_dim.is_multiple_of(2) {
        return Err(keys.error(names.key_length, format!("is {head_dim}, but rotary embedding needs an even number")));
    }
    let Some(name) = names.value_length else { return Ok(head_dim) };
    let value_length = keys.optional_size(name, MAX_HEAD_DIM)?.unwrap_or(head_dim);
    if value_length != head_dim {
        let what = format!("is {value_length}, but keys have {head_dim} elements: only equal lengths are supported");
        return Err(keys.error(name, what));
    }
    Ok(head_dim)
}

fn vocab_size(gguf: &Gguf) -> Result<usize> {
    const NAME: &str = "token_embd.weight";
    let tensor = gguf.tensor(NAME).ok_or_else(|| Error::tensor(NAME, "is missing from the file"))?;
    match tensor.shape[..] {
        [rows, _] if u32::try_from(rows).is_ok() && rows > 0 => Ok(rows),
        _ => {
            let what = format!("has shape {:?}, but a matrix [vocabulary, width] is expected", tensor.shape);
            Err(Error::tensor(NAME, what))
        }
    }
}
