//! Reads the settings of a `config.json`, which may be hostile: types are checked here, and ranges
//! with the keys of GGUF files (`models/config.rs`).

use std::path::{Path, PathBuf};

use serde_json::{Map as Object, Value as Json};

use super::{Checkpoint, KeyValues, Meaning, Need, Setting};
use crate::{
    Error, Result,
    gguf::{Array, TensorInfo, Value, quoted},
};

/// The name of the file with a checkpoint's settings.
pub(super) const CONFIG: &str = "config.json";

/// The object of the settings of a vision encoder.
pub(super) const VISION: &str = "vision_config";

/// The settings of a checkpoint, or of a part of it. A multimodal model keeps the settings of its
/// language model in the object `text_config`, which is searched first.
pub(in crate::models) struct Settings<'a> {
    /// The file, for messages.
    path: PathBuf,
    /// The path of the object within the file, with a dot after each name.
    prefix: String,
    config: &'a Object<String, Json>,
    text: Option<&'a Object<String, Json>>,
}

impl<'a> Settings<'a> {
    /// Returns the settings of `config`, the `config.json` of `directory`.
    ///
    /// # Errors
    /// [`Error::InvalidFile`] for a model with quantized tensors.
    pub fn new(directory: &'a Path, config: &'a Object<String, Json>) -> Result<Self> {
        let text = config.get("text_config").and_then(Json::as_object);
        let settings = Self { text, ..Self::of_object(directory.join(CONFIG), config) };
        let quantization = ["quantization_config", "compression_config"];
        if let Some(name) = quantization.into_iter().find(|name| settings.get(name).is_some()) {
            let what = "is set: quantized safetensors are not supported, use a GGUF file";
            return Err(settings.error(name, what));
        }
        Ok(settings)
    }

    /// Returns the settings of an object that is a whole file.
    pub fn of_object(path: PathBuf, config: &'a Object<String, Json>) -> Self {
        Self { path, prefix: String::new(), config, text: None }
    }

    /// Returns the settings of the object `name`, or `None` if it is absent or null.
    pub fn nested(&self, name: &str) -> Result<Option<Self>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let config = value.as_object().ok_or_else(|| self.type_error(name, value, "an object"))?;
        Ok(Some(Self { path: self.path.clone(), prefix: format!("{}{name}.", self.prefix), config, text: None }))
    }

    /// Returns the settings outside of `text_config`.
    pub fn whole(&self) -> Self {
        Self { path: self.path.clone(), prefix: self.prefix.clone(), config: self.config, text: None }
    }

    /// Returns whether the model is multimodal, with its language model as one part.
    pub fn is_multimodal(&self) -> bool {
        self.text.is_some() || self.config.get(VISION).is_some_and(Json::is_object)
    }

    /// Returns the value of a setting, or `None` if it is absent or null.
    pub fn get(&self, name: &str) -> Option<&'a Json> {
        self.get_or_null(name).filter(|value| !value.is_null())
    }

    fn get_or_null(&self, name: &str) -> Option<&'a Json> {
        let of_text = self.text.and_then(|text| text.get(name));
        of_text.or_else(|| self.config.get(name))
    }

    pub fn error(&self, name: &str, what: impl AsRef<str>) -> Error {
        let what = format!("`{}{name}` {}", self.prefix, what.as_ref());
        Error::InvalidFile { path: self.path.clone(), what }
    }

    pub fn type_error(&self, name: &str, value: &Json, expected: &str) -> Error {
        self.error(name, format!("is {}, but {expected} is expected", quoted(&unquoted(value))))
    }

    pub fn model_type(&self) -> Result<&'a str> {
        const NAME: &str = "model_type";
        let value = self.get(NAME).ok_or_else(|| self.error(NAME, "is missing"))?;
        value.as_str().ok_or_else(|| self.type_error(NAME, value, "a name"))
    }

    pub fn size(&self, name: &str) -> Result<Option<u32>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
        size.map(Some).ok_or_else(|| self.type_error(name, value, "an integer from 0 to 4294967295"))
    }

    /// Returns the side of a square: an integer, or a list of two equal integers.
    pub fn side(&self, name: &str) -> Result<Option<u32>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let side = match value.as_array().map(Vec::as_slice) {
            Some([height, width]) if height == width => height,
            Some(_) => return Err(self.type_error(name, value, "one size for width and height")),
            None => value,
        };
        let side = side.as_u64().and_then(|side| u32::try_from(side).ok());
        side.map(Some).ok_or_else(|| self.type_error(name, value, "an integer from 0 to 4294967295"))
    }

    pub fn float(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| self.type_error(name, value, "a number"))
    }

    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.type_error(name, value, "true or false"))
    }

    /// Returns whether the embedding is also the output matrix.
    pub fn tied(&self, default: bool) -> Result<bool> {
        Ok(self.bool("tie_word_embeddings")?.unwrap_or(default))
    }

    /// Returns the GGUF keys of settings. The first of several settings with one key counts.
    pub fn keys<'s>(&self, settings: impl IntoIterator<Item = &'s Setting>) -> Result<KeyValues> {
        let mut keys: KeyValues = vec![];
        for Setting { name, meaning } in settings {
            if let Some((key, value)) = self.key(name, meaning)?
                && keys.iter().all(|(known, _)| *known != key)
            {
                keys.push((key, value));
            }
        }
        Ok(keys)
    }

    fn key(&self, name: &str, meaning: &Meaning) -> Result<Option<(&'static str, Value)>> {
        let float = || Ok::<_, Error>(self.float(name)?.map(|value| value as f32));
        Ok(match *meaning {
            Meaning::Size(key, need) => self.needed(name, self.size(name)?, need)?.map(|size| (key, Value::U32(size))),
            Meaning::Side(key, default) => Some((key, Value::U32(self.side(name)?.unwrap_or(default)))),
            Meaning::Float(key, need) => self.needed(name, float()?, need)?.map(|value| (key, Value::F32(value))),
            Meaning::Flag(key, default) => Some((key, Value::Bool(self.bool(name)?.unwrap_or(default)))),
            Meaning::InverseRoot(key, default) => Some((key, Value::F32(float()?.unwrap_or(default).sqrt().recip()))),
            Meaning::Cap(key, _) if self.get_or_null(name) == Some(&Json::Null) => Some((key, Value::F32(0.0))),
            Meaning::Cap(key, default) => Some((key, Value::F32(float()?.unwrap_or(default)))),
            Meaning::Kinds(key, kind) => self.kinds(name, kind)?.map(|layers| (key, Value::Array(Array::Bool(layers)))),
            Meaning::OneOf(values) => {
                self.check_one_of(name, values)?;
                None
            }
            Meaning::Check(error) => match self.get(name).and_then(error) {
                Some(what) => return Err(self.error(name, what)),
                None => None,
            },
            Meaning::Biases(_) | Meaning::Derived(_) => None,
        })
    }

    /// Returns for each layer whether it is of the `kind`, and not of full attention.
    pub fn kinds(&self, name: &str, kind: &str) -> Result<Option<Vec<bool>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let is_of_kind = |layer: &Json| match layer.as_str() {
            Some(layer) if layer == kind => Some(true),
            Some("full_attention") => Some(false),
            _ => None,
        };
        let layers = value.as_array().and_then(|layers| layers.iter().map(is_of_kind).collect());
        let expected = format!("a list of {kind} and full_attention");
        layers.map(Some).ok_or_else(|| self.type_error(name, value, &expected))
    }

    fn needed<T>(&self, name: &str, value: Option<T>, need: Need<T>) -> Result<Option<T>> {
        match (value, need) {
            (None, Need::Required) => Err(self.error(name, "is missing")),
            (None, Need::Or(default)) => Ok(Some(default)),
            (value, Need::Required | Need::Or(_) | Need::Optional) => Ok(value),
        }
    }

    fn check_one_of(&self, name: &str, values: &[&str]) -> Result<()> {
        match self.get(name).map(unquoted).filter(|value| !values.contains(&value.as_str())) {
            None => Ok(()),
            Some(other) => {
                let supported = values.join(" or ");
                let what = format!("is {}, but only {supported} is supported for this architecture", quoted(&other));
                Err(self.error(name, what))
            }
        }
    }

    /// Checks that the embedding, if there is one, has a row for each token of the vocabulary.
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

    /// Checks that the tensors, by GGUF name, include the biases that the settings say, and no
    /// other bias of the same parts.
    pub fn check_biases(&self, checkpoint: &Checkpoint, tensors: &[TensorInfo]) -> Result<()> {
        let is_bias_of = |name: &str, part: &str| {
            let of_layer = name.strip_prefix("blk.").and_then(|name| name.split_once('.'));
            of_layer.is_some_and(|(_, rest)| rest.strip_suffix(".bias") == Some(part))
        };
        let layers = self.size("num_hidden_layers")?.unwrap_or(0) as usize;
        for Setting { name, meaning } in checkpoint.all_settings() {
            let Meaning::Biases(parts) = meaning else { continue };
            let has_biases = self.bool(name)?.unwrap_or(false);
            for part in *parts {
                let found = tensors.iter().filter(|tensor| is_bias_of(&tensor.name, part)).count();
                if found != if has_biases { layers } else { 0 } {
                    let what = format!("is {has_biases}, but {found} of {layers} layers have a tensor {part}.bias");
                    return Err(self.error(name, what));
                }
            }
        }
        Ok(())
    }
}

impl Settings<'_> {
    /// Checks that layers have the tensor `part`, by its GGUF name, if the setting `name` has the
    /// value `value`, and that none has it otherwise. An absent setting is false.
    pub fn check_tensor(&self, name: &str, value: bool, tensors: &[TensorInfo], part: &str) -> Result<()> {
        let set = self.bool(name)?.unwrap_or(false);
        let suffix = format!(".{part}.weight");
        let found = tensors.iter().any(|tensor| tensor.name.ends_with(&suffix));
        if found == (set == value) {
            return Ok(());
        }
        let has = if found { "have" } else { "lack" };
        Err(self.error(name, format!("is {set}, but layers {has} a tensor {part}")))
    }
}

impl Checkpoint {
    /// Returns each setting once: the first row with its name.
    pub fn all_settings(&self) -> impl Iterator<Item = &'static Setting> {
        let rows = self.settings.iter().flat_map(|rows| rows.iter());
        let is_first = {
            let rows = rows.clone();
            move |(index, row): &(usize, &Setting)| !rows.clone().take(*index).any(|other| other.name == row.name)
        };
        rows.enumerate().filter(is_first).map(|(_, row)| row)
    }
}

/// Returns a value as JSON writes it, but strings without quotes.
fn unquoted(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), Into::into)
}
