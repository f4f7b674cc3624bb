//! The settings of a `config.json`, which is a stranger's: each is held to its type here, and to its range where every
//! model's is (`models/config.rs`).

use std::path::Path;

use serde_json::{Map as Object, Value as Json};

use super::{Checkpoint, Key, Means, Need};
use crate::{
    Error, Result,
    gguf::{Array, TensorInfo, Value, quoted},
};

/// Looks up settings. Models that see as well as read keep those of their text in an object of their own.
pub(in crate::models) struct Settings<'a> {
    directory: &'a Path,
    config: &'a Object<String, Json>,
    text: Option<&'a Object<String, Json>>,
}

impl<'a> Settings<'a> {
    /// Looks up in `config`, the `config.json` of `directory`.
    ///
    /// # Errors
    /// [`Error::InvalidFile`] for a model whose tensors are quantised in a way of their own.
    pub fn new(directory: &'a Path, config: &'a Object<String, Json>) -> Result<Self> {
        let text = config.get("text_config").and_then(Json::as_object);
        let settings = Self { directory, config, text };
        match ["quantization_config", "compression_config"].into_iter().find(|name| settings.get(name).is_some()) {
            Some(name) => Err(settings.error(name, "asks for quantised tensors, which are not read: use a GGUF file")),
            None => Ok(settings),
        }
    }

    /// Whether they are those of a part of the model, its text.
    pub fn are_a_part(&self) -> bool {
        self.text.is_some()
    }

    /// The setting's value, unless it is absent or null.
    pub fn get(&self, name: &str) -> Option<&'a Json> {
        self.raw(name).filter(|value| !value.is_null())
    }

    fn raw(&self, name: &str) -> Option<&'a Json> {
        let own = self.text.and_then(|text| text.get(name));
        own.or_else(|| self.config.get(name))
    }

    pub fn error(&self, name: &str, what: impl AsRef<str>) -> Error {
        Error::InvalidFile { path: self.directory.join("config.json"), what: format!("`{name}` {}", what.as_ref()) }
    }

    fn unlike(&self, name: &str, value: &Json, wanted: &str) -> Error {
        self.error(name, format!("is {}: {wanted} is wanted", quoted(&plain(value))))
    }

    pub fn model_type(&self) -> Result<&'a str> {
        const NAME: &str = "model_type";
        let value = self.get(NAME).ok_or_else(|| self.error(NAME, "is missing"))?;
        value.as_str().ok_or_else(|| self.unlike(NAME, value, "a name"))
    }

    /// A whole number.
    pub fn size(&self, name: &str) -> Result<Option<u32>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
        size.map(Some).ok_or_else(|| self.unlike(name, value, "a whole number from 0 to 4294967295"))
    }

    pub fn float(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| self.unlike(name, value, "a number"))
    }

    /// A yes or no.
    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.unlike(name, value, "true or false"))
    }

    /// Whether the embedding is the head's matrix.
    pub fn tied(&self, usually: bool) -> Result<bool> {
        Ok(self.bool("tie_word_embeddings")?.unwrap_or(usually))
    }

    /// What GGUF has keys for, without the architecture's name; of several settings for one key the first counts.
    pub fn keys(&self, checkpoint: &Checkpoint) -> Result<Vec<(&'static str, Value)>> {
        let mut keys: Vec<(_, Value)> = vec![];
        for Key { name, means } in checkpoint.settings() {
            if let Some((key, value)) = self.key(name, means)?
                && keys.iter().all(|(other, _)| *other != key)
            {
                keys.push((key, value));
            }
        }
        Ok(keys)
    }

    fn key(&self, name: &str, means: &Means) -> Result<Option<(&'static str, Value)>> {
        let float = || Ok::<_, Error>(self.float(name)?.map(|value| value as f32));
        Ok(match *means {
            Means::Size(key, need) => self.needed(name, self.size(name)?, need)?.map(|size| (key, Value::U32(size))),
            Means::Float(key, need) => self.needed(name, float()?, need)?.map(|value| (key, Value::F32(value))),
            Means::Flag(key, default) => Some((key, Value::Bool(self.bool(name)?.unwrap_or(default)))),
            Means::InverseRoot(key, default) => Some((key, Value::F32(float()?.unwrap_or(default).sqrt().recip()))),
            Means::Cap(key, _) if self.raw(name) == Some(&Json::Null) => Some((key, Value::F32(0.0))),
            Means::Cap(key, default) => Some((key, Value::F32(float()?.unwrap_or(default)))),
            Means::Kinds(key, kind) => self.kinds(name, kind)?.map(|layers| (key, Value::Array(Array::Bool(layers)))),
            Means::Only(values) => self.check_only(name, values)?,
            Means::Check(wrong) => match self.get(name).and_then(wrong) {
                Some(what) => return Err(self.error(name, what)),
                None => None,
            },
            Means::Biases(_) | Means::Derived(_) => None,
        })
    }

    /// Which layers are of the kind, rather than plain attention.
    pub fn kinds(&self, name: &str, kind: &str) -> Result<Option<Vec<bool>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let is_of_kind = |layer: &Json| match layer.as_str() {
            Some(layer) if layer == kind => Some(true),
            Some("full_attention") => Some(false),
            _ => None,
        };
        let layers = value.as_array().and_then(|layers| layers.iter().map(is_of_kind).collect());
        let wanted = format!("a list of {kind} and full_attention");
        layers.map(Some).ok_or_else(|| self.unlike(name, value, &wanted))
    }

    fn needed<T>(&self, name: &str, value: Option<T>, need: Need<T>) -> Result<Option<T>> {
        match (value, need) {
            (None, Need::Required) => Err(self.error(name, "is missing")),
            (None, Need::Or(default)) => Ok(Some(default)),
            (value, _) => Ok(value),
        }
    }

    fn check_only<T>(&self, name: &str, values: &[&str]) -> Result<Option<T>> {
        match self.get(name).map(plain) {
            Some(other) if !values.contains(&other.as_str()) => {
                let built = values.join(" or ");
                let what = format!("is {}, which is not built yet for this architecture: {built} is", quoted(&other));
                Err(self.error(name, what))
            }
            _ => Ok(None),
        }
    }

    /// Holds the embedding, of which there may be none, to the size of the vocabulary.
    pub fn check_vocabulary(&self, tensors: &[TensorInfo]) -> Result<()> {
        const NAME: &str = "vocab_size";
        let embedding = tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
        match (self.size(NAME)?, embedding.and_then(|tensor| tensor.shape.first())) {
            (Some(size), Some(&rows)) if size as usize != rows => {
                Err(self.error(NAME, format!("is {size}, but the embedding has {rows} rows")))
            }
            _ => Ok(()),
        }
    }

    /// Holds the biases that `tensors` have, by GGUF's names, to what the settings say of them.
    pub fn check_biases(&self, checkpoint: &Checkpoint, tensors: &[TensorInfo]) -> Result<()> {
        let is_bias_of = |name: &str, part: &str| {
            let found = name.strip_prefix("blk.").and_then(|name| name.split_once('.'));
            found.is_some_and(|(_, rest)| rest.strip_suffix(".bias") == Some(part))
        };
        let layers = self.size("num_hidden_layers")?.unwrap_or(0) as usize;
        for Key { name, means } in checkpoint.settings() {
            let Means::Biases(parts) = means else { continue };
            let asked = self.bool(name)?.unwrap_or(false);
            for part in *parts {
                let found = tensors.iter().filter(|tensor| is_bias_of(&tensor.name, part)).count();
                if found != if asked { layers } else { 0 } {
                    let what = format!("is {asked}, but {found} of {layers} layers have an {part}.bias");
                    return Err(self.error(name, what));
                }
            }
        }
        Ok(())
    }
}

impl Checkpoint {
    /// Every key once.
    pub fn settings(&self) -> impl Iterator<Item = &'static Key> {
        let all = self.config.iter().flat_map(|keys| keys.iter());
        all.clone()
            .enumerate()
            .filter(move |(n, key)| !all.clone().take(*n).any(|other| other.name == key.name))
            .map(|(_, key)| key)
    }
}

/// The value as JSON writes it, but without quotes.
fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), Into::into)
}
