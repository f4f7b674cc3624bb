//! A model's sizes and constants, read from the file's metadata.
//!
//! The file is a stranger's, so each number is held to a range here, and what follows may multiply them. A key that
//! asks for something that the families do not do is refused by name rather than ignored.

use super::rope::RopeConfig;
use crate::{
    Error, Result,
    gguf::{Array, Gguf, Value},
};

/// The largest sizes that are believed. They leave room over every model known, and products of two fit 32 bits.
const MAX_LAYERS: usize = 1 << 12;
const MAX_WIDTH: usize = 1 << 24;
const MAX_HEADS: usize = 1 << 12;
const MAX_HEAD_DIM: usize = 1 << 12;
const MAX_CONTEXT: usize = 1 << 31;

/// A model's sizes and constants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The family, `general.architecture`.
    pub architecture: String,
    /// The model's own name, `general.name`.
    pub name: Option<String>,
    /// Layers, each an attention and a feed-forward block.
    pub layers: usize,
    /// Elements of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements of a head; `heads * head_dim` need not be `hidden`.
    pub head_dim: usize,
    /// Elements between the two halves of a feed-forward block.
    pub ffn: usize,
    /// Tokens that the model knows: rows of the embedding and of the logits.
    pub vocab_size: usize,
    /// The positions that the model was trained for.
    pub context_length: usize,
    /// What RMS norms add to the mean square.
    pub rms_eps: f32,
    /// How positions are encoded.
    pub rope: RopeConfig,
}

impl Config {
    pub(super) fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let keys = Keys { gguf, architecture: gguf.architecture()? };
        keys.refuse_unbuilt()?;
        let layers = keys.size("block_count", MAX_LAYERS)?;
        let hidden = keys.size("embedding_length", MAX_WIDTH)?;
        let heads = keys.per_layer("attention.head_count", layers, MAX_HEADS)?;
        let heads = keys.required("attention.head_count", heads)?;
        let head_dim = keys.head_dim(hidden, heads)?;
        let context_length = keys.size("context_length", MAX_CONTEXT)?;
        let ffn = keys.per_layer("feed_forward_length", layers, MAX_WIDTH)?;
        Ok(Self {
            architecture: keys.architecture.into(),
            name: gguf.str("general.name")?.map(Into::into),
            layers,
            hidden,
            heads,
            kv_heads: keys.kv_heads(layers, heads)?,
            head_dim,
            ffn: keys.required("feed_forward_length", ffn)?,
            vocab_size: vocab_size(gguf)?,
            context_length,
            rms_eps: keys.float("attention.layer_norm_rms_epsilon", 0.0..1.0, None)?,
            rope: RopeConfig::read(&keys, head_dim, context_length)?,
        })
    }
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

/// Looks up keys of one architecture, `ARCHITECTURE.KEY`.
pub(super) struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
}

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(super) fn error(&self, key: &str, what: impl Into<String>) -> Error {
        Error::metadata(self.full(key), what)
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        let key = self.full(key);
        self.gguf.required(&key, Ok(value))
    }

    /// A number from 1 to `max`, which must be there.
    fn size(&self, key: &str, max: usize) -> Result<usize> {
        let value = self.optional_size(key, max)?;
        self.required(key, value)
    }

    /// A number from 1 to `max`.
    pub(super) fn optional_size(&self, key: &str, max: usize) -> Result<Option<usize>> {
        let value = self.gguf.usize(&self.full(key))?;
        value.map(|n| self.check_size(key, n, max)).transpose()
    }

    fn check_size(&self, key: &str, n: usize, max: usize) -> Result<usize> {
        if (1..=max).contains(&n) {
            Ok(n)
        } else {
            Err(self.error(key, format!("is {n}, but must be from 1 to {max}")))
        }
    }

    /// A number from 1 to `max`, or an array of the same number for every layer.
    fn per_layer(&self, key: &str, layers: usize, max: usize) -> Result<Option<usize>> {
        let Some(Value::Array(array)) = self.gguf.get(&self.full(key)) else { return self.optional_size(key, max) };
        let numbers = integers(array).ok_or_else(|| self.error(key, "is an array of something else than sizes"))?;
        match numbers.split_first() {
            Some((first, rest)) if numbers.len() == layers && rest.iter().all(|n| n == first) => {
                self.check_size(key, *first, max).map(Some)
            }
            Some(_) if numbers.len() == layers => {
                Err(self.error(key, "differs from layer to layer, which is not built yet"))
            }
            _ => Err(self.error(key, format!("has {} entries for {layers} layers", numbers.len()))),
        }
    }

    /// A float in `range`, or `default` where the key is absent; an error where there is no default.
    pub(super) fn float(&self, key: &str, range: std::ops::Range<f32>, default: Option<f32>) -> Result<f32> {
        let value = self.gguf.f32(&self.full(key))?.or(default);
        let value = self.required(key, value)?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(self.error(key, format!("is {value}, but must be at least {} and below {}", range.start, range.end)))
    }

    pub(super) fn str(&self, key: &str) -> Result<Option<&str>> {
        self.gguf.str(&self.full(key))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.gguf.get(&self.full(key)).is_some()
    }

    fn kv_heads(&self, layers: usize, heads: usize) -> Result<usize> {
        const KEY: &str = "attention.head_count_kv";
        let kv_heads = self.per_layer(KEY, layers, MAX_HEADS)?.unwrap_or(heads);
        if heads.is_multiple_of(kv_heads) {
            return Ok(kv_heads);
        }
        Err(self.error(KEY, format!("is {kv_heads}, which does not divide the {heads} query heads")))
    }

    fn head_dim(&self, hidden: usize, heads: usize) -> Result<usize> {
        const KEY: &str = "attention.key_length";
        let head_dim = match self.optional_size(KEY, MAX_HEAD_DIM)? {
            Some(head_dim) => head_dim,
            None if hidden.is_multiple_of(heads) => self.check_size(KEY, hidden / heads, MAX_HEAD_DIM)?,
            None => {
                return Err(self.error(KEY, format!("is missing, and {heads} heads do not divide a width of {hidden}")));
            }
        };
        if !head_dim.is_multiple_of(2) {
            return Err(self.error(KEY, format!("is {head_dim}, but rotary embedding wants an even number")));
        }
        let value_length = self.optional_size("attention.value_length", MAX_HEAD_DIM)?.unwrap_or(head_dim);
        if value_length != head_dim {
            let what = format!("is {value_length}, but keys have {head_dim} elements, and no family here has both");
            return Err(self.error("attention.value_length", what));
        }
        Ok(head_dim)
    }

    /// Refuses what llama.cpp's format can ask of these families and they do not do here.
    fn refuse_unbuilt(&self) -> Result<()> {
        for key in ["expert_count", "attention.sliding_window"] {
            if let Some(n @ 1..) = self.gguf.u64(&self.full(key))? {
                return Err(self.error(key, format!("is {n}, which is not built yet for this architecture: 0 is")));
            }
        }
        match self.gguf.bool(&self.full("attention.causal"))? {
            Some(false) => Err(self.error("attention.causal", "is false: models that look ahead are not built yet")),
            Some(true) | None => Ok(()),
        }
    }
}

fn integers(array: &Array) -> Option<Vec<usize>> {
    fn all<T: Copy + TryInto<usize>>(numbers: &[T]) -> Option<Vec<usize>> {
        numbers.iter().map(|&n| n.try_into().ok()).collect()
    }
    match array {
        Array::U8(n) => all(n),
        Array::I8(n) => all(n),
        Array::U16(n) => all(n),
        Array::I16(n) => all(n),
        Array::U32(n) => all(n),
        Array::I32(n) => all(n),
        Array::U64(n) => all(n),
        Array::I64(n) => all(n),
        Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::String(_) | Array::Array(_) => None,
    }
}
