//! A model's sizes and constants, read from the file's metadata.
//!
//! The file is a stranger's, so each number is held to a range here, and what follows may multiply them.

use super::{
    experts::Experts,
    keys::{Keys, MAX_CONTEXT, MAX_WIDTH},
    rope::RopeConfig,
};
use crate::{Error, Result, gguf::Gguf, graph::Scores};

/// The largest sizes that are believed. They leave room over every model known, and products of two fit 32 bits.
const MAX_LAYERS: usize = 1 << 12;
const MAX_HEADS: usize = 1 << 12;
const MAX_HEAD_DIM: usize = 1 << 12;

/// The layers that see no more than a window.
pub(super) const PATTERN: &str = "attention.sliding_window_pattern";

/// A model's sizes and constants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The family, `general.architecture`.
    pub architecture: String,
    /// The model's own name, `general.name`.
    pub name: Option<String>,
    /// Elements of the residual stream.
    pub hidden: usize,
    /// Tokens that the model knows: rows of the embedding and of the logits.
    pub vocab_size: usize,
    /// The positions that the model was trained for.
    pub context_length: usize,
    /// What RMS norms add to the mean square.
    pub rms_eps: f32,
    /// What the rows of the embedding are multiplied by.
    pub embedding_scale: f32,
    /// What attention and feed-forward are multiplied by before they are added to the residual stream.
    pub residual_scale: f32,
    /// What the logits are multiplied by.
    pub logit_scale: f32,
    /// A logit `x` becomes `c tanh(x / c)`, where there is such a `c`.
    pub logit_softcap: Option<f32>,
    /// Whether the tensors lie as in the checkpoint that they come from (`tensor_data_layout`). Converters to GGUF permute
    /// the rows of some families' queries and keys, so that adjacent elements rather than halves are rotated together.
    pub reference_layout: bool,
    /// The layers, each an attention and a feed-forward block.
    pub layers: Vec<LayerConfig>,
    /// How names of tensors begin that change none of the logits: those of layers that predict tokens further ahead, and
    /// those that nobody reads since a layer uses what another has made.
    pub left_out: Vec<String>,
}

/// One layer's sizes and constants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerConfig {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements of a head; `heads * head_dim` need not be the model's width.
    pub head_dim: usize,
    /// Elements between the two halves of the feed-forward block.
    pub ffn: usize,
    /// What takes that block's place, where something does.
    pub experts: Option<Experts>,
    /// What becomes of attention's scores before the softmax, but for what YaRN's growth does to them.
    pub scores: Scores,
    /// How positions are encoded in queries and keys; not at all where it is `None`.
    pub rope: Option<RopeConfig>,
}

impl Config {
    /// What all families have in common; the scales are 1, and every layer is full attention with all heads rotated.
    pub(super) fn read(keys: &Keys) -> Result<Self> {
        if keys.bool("attention.causal")? == Some(false) {
            return Err(keys.error("attention.causal", "is false: models that look ahead are not built yet"));
        }
        Ok(Self {
            architecture: keys.architecture.into(),
            name: keys.gguf.str("general.name")?.map(Into::into),
            hidden: hidden(keys)?,
            vocab_size: vocab_size(keys.gguf)?,
            context_length: keys.size("context_length", MAX_CONTEXT)?,
            rms_eps: keys.float("attention.layer_norm_rms_epsilon", 0.0..1.0, None)?,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            logit_softcap: None,
            reference_layout: keys.str("tensor_data_layout")? == Some("reference"),
            layers: layers(keys)?,
            left_out: vec![],
        })
    }

    /// Leaves out the layers at the end that only predict tokens further ahead.
    pub(super) fn leave_out_nextn(&mut self, keys: &Keys) -> Result<()> {
        let blocks = self.layers.len();
        let nextn = keys.count("nextn_predict_layers", blocks - 1)?;
        self.layers.truncate(blocks - nextn);
        self.left_out.extend((blocks - nextn..blocks).map(|n| format!("blk.{n}.")));
        Ok(())
    }

    /// Lets those layers see no more than a window for which `attention.sliding_window_pattern` says so; where the file
    /// has none, all but the last of each `period`.
    pub(super) fn slide(&mut self, keys: &Keys, window: usize, period: usize) -> Result<()> {
        let slides = keys.pattern(PATTERN, self.layers.len(), period)?;
        for (layer, slides) in self.layers.iter_mut().zip(slides) {
            layer.scores.window = slides.then_some(window);
        }
        Ok(())
    }
}

fn hidden(keys: &Keys) -> Result<usize> {
    keys.size("embedding_length", MAX_WIDTH)
}

fn layers(keys: &Keys) -> Result<Vec<LayerConfig>> {
    const HEADS: &str = "attention.head_count";
    const KV_HEADS: &str = "attention.head_count_kv";
    const FFN: &str = "feed_forward_length";
    let count = keys.size("block_count", MAX_LAYERS)?;
    let heads = keys.required(HEADS, keys.per_layer(HEADS, count, MAX_HEADS)?)?;
    let kv_heads = keys.per_layer(KV_HEADS, count, MAX_HEADS)?.unwrap_or_else(|| heads.clone());
    // Where nothing but experts has a width, the file may give theirs alone.
    let ffn = match keys.expert_width()? {
        Some(width) if keys.is_zero(FFN) => vec![width; count],
        _ => keys.required(FFN, keys.per_layer(FFN, count, MAX_WIDTH)?)?,
    };
    let layer = |n: usize| {
        let (heads, kv_heads) = (heads[n], kv_heads[n]);
        if !heads.is_multiple_of(kv_heads) {
            return Err(keys.error(KV_HEADS, format!("is {kv_heads}, which does not divide the {heads} query heads")));
        }
        let head_dim = head_dim(keys, heads)?;
        let rope = Some(RopeConfig::read(keys, head_dim)?);
        let scores = (head_dim as f32).sqrt().recip().into();
        Ok(LayerConfig { heads, kv_heads, head_dim, ffn: ffn[n], experts: None, scores, rope })
    };
    (0..count).map(layer).collect()
}

fn head_dim(keys: &Keys, heads: usize) -> Result<usize> {
    const KEY: &str = "attention.key_length";
    const VALUE: &str = "attention.value_length";
    let hidden = hidden(keys)?;
    match head_dim_of(keys, [KEY, VALUE])? {
        Some(head_dim) => Ok(head_dim),
        None if hidden.is_multiple_of(heads) => check_head_dim(keys, [KEY, VALUE], hidden / heads),
        None => Err(keys.error(KEY, format!("is missing, and {heads} heads do not divide a width of {hidden}"))),
    }
}

/// The elements of a head by these keys, one for keys and one for values.
pub(super) fn head_dim_of(keys: &Keys, [key, value]: [&str; 2]) -> Result<Option<usize>> {
    keys.optional_size(key, MAX_HEAD_DIM)?.map(|head_dim| check_head_dim(keys, [key, value], head_dim)).transpose()
}

fn check_head_dim(keys: &Keys, [key, value]: [&str; 2], head_dim: usize) -> Result<usize> {
    let head_dim = keys.check_size(key, head_dim, MAX_HEAD_DIM)?;
    if !head_dim.is_multiple_of(2) {
        return Err(keys.error(key, format!("is {head_dim}, but rotary embedding wants an even number")));
    }
    let value_length = keys.optional_size(value, MAX_HEAD_DIM)?.unwrap_or(head_dim);
    if value_length != head_dim {
        let what = format!("is {value_length}, but keys have {head_dim} elements, and no family here has both");
        return Err(keys.error(value, what));
    }
    Ok(head_dim)
}

fn vocab_size(gguf: &Gguf) -> Result<usize> {
    const NAME: &str = "token_embd.weight";
    let tensor = gguf.tensor(NAME).ok_or_else(|| Error::tensor(NAME, "is missing"))?;
    match tensor.shape[..] {
        [rows, _] if u32::try_from(rows).is_ok() && rows > 0 => Ok(rows),
        _ => Err(Error::tensor(
            NAME,
            format!("has the shape {:?}, a matrix [vocabulary, width] is wanted", tensor.shape),
        )),
    }
}
