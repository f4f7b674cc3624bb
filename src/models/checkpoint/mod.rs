//! Translates a Hugging Face checkpoint (`config.json`, safetensors) into GGUF keys and tensor
//! names.
//!
//! Each family has a table, a [`Checkpoint`]: the GGUF key of each setting, the settings that are
//! not supported, and the GGUF name of each tensor. Later stages see only the result, a [`Gguf`].
//! The bytes of tensors stay mapped where the files have them. Two kinds of tensors are made in
//! memory: vectors that GGUF stores in another form, and divisors of rotary frequencies, which a
//! checkpoint has only as settings.
//!
//! The tables follow `configuration_*.py` and `modeling_*.py` of transformers 5: a table has every
//! setting that the family's code there reads.

mod config;
mod encoder;
mod rope;
mod table;
mod tensors;
mod transform;

use std::path::Path;

pub(super) use config::Settings;
pub use encoder::open_encoder;
pub(super) use encoder::{EncoderCheckpoint, EncoderSettings, reword_encoder};
pub(super) use table::{
    BIASES, Checkpoint, EXPERTS, FULL_ATTENTION, KeyValues, Meaning, Need, SILU, SIZES, Setting, TENSORS,
    TensorMapping, Transform, check, float, one_of, setting, side, size, tensor, transformed,
};

use super::{FAMILIES, Family, unsupported};
use crate::{
    Error, Result,
    gguf::{Array, Gguf, Value},
    safetensors::Directory,
};

/// Opens the model at `path`: a GGUF file, or a directory of safetensors as transformers writes it,
/// which is translated into GGUF keys and tensor names.
///
/// # Errors
/// - [`Error::Io`] if a file cannot be read.
/// - [`Error::InvalidFile`] for a file that is not valid, and for a setting of `config.json` that
///   is missing or not supported.
/// - [`Error::Architecture`] for a directory of a family that is not supported.
/// - [`Error::Tensor`] for a tensor in a format that cannot be translated, or that is missing or
///   stored twice.
pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
    let path = path.as_ref();
    if path.is_dir() { open_directory(path) } else { Gguf::open(path) }
}

/// Opens a directory like [`open`].
pub(crate) fn open_directory(path: &Path) -> Result<Gguf> {
    let directory = Directory::open(path)?;
    let settings = Settings::new(path, &directory.config)?;
    let (family, checkpoint) = find(settings.model_type()?)?;
    let mut keys = vec![("general.architecture".to_owned(), Value::String(family.architecture.into()))];
    if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
        keys.push(("general.name".into(), Value::String(name.into())));
    }
    let full_key = |(key, value): (&str, Value)| (format!("{}.{key}", family.architecture), value);
    let head = tensors::head_layer(&directory.tensors, checkpoint, &settings)?;
    let mut tensors = tensors::translate(&directory.tensors, checkpoint, &settings, head)?;
    let mut key_values = settings.keys(checkpoint.all_settings())?;
    key_values.extend((checkpoint.derived)(&settings, &tensors)?);
    let rope = rope::read(&settings, checkpoint, &key_values)?;
    if head.is_some() {
        count_head(&mut key_values);
    }
    keys.extend(key_values.into_iter().chain(rope.keys).map(full_key));
    if checkpoint.permuted {
        keys.push(full_key(("tensor_data_layout", Value::String("reference".into()))));
    }
    settings.check_vocabulary(&tensors)?;
    settings.check_biases(checkpoint, &tensors)?;
    tensors.extend(rope.divisors);
    keys.extend(directory.tokenizer);
    Gguf::translated(path, keys, tensors)
}

/// Counts the layer of a head for multi-token prediction, which is not recurrent, in the keys.
fn count_head(keys: &mut KeyValues) {
    for (key, value) in keys.iter_mut() {
        match (*key, value) {
            ("block_count", Value::U32(count)) => *count = count.saturating_add(1),
            (_, Value::Array(Array::Bool(layers))) => layers.push(false),
            _ => {}
        }
    }
    keys.push(("nextn_predict_layers", Value::U32(1)));
}

/// Returns the number of the layer that a head for multi-token prediction has become, if there is
/// one.
fn counted_head(family: &Family, translated: &Gguf) -> Option<u64> {
    let count = |key: &str| translated.u64(&format!("{}.{key}", family.architecture)).ok().flatten();
    count("block_count")?.checked_sub(count("nextn_predict_layers")?)
}

/// Returns the family, and its table, for a `model_type`.
fn find(model_type: &str) -> Result<(&'static Family, &'static Checkpoint)> {
    let mut all =
        FAMILIES.iter().flat_map(|family| family.checkpoints.iter().map(move |checkpoint| (family, *checkpoint)));
    let types = all.clone().flat_map(|(_, checkpoint)| checkpoint.model_types).copied();
    all.find(|(_, checkpoint)| checkpoint.model_types.contains(&model_type))
        .ok_or_else(|| unsupported(model_type, &types.collect::<Vec<_>>()))
}

/// Returns an error about a translated model of the `family` as an error about its directory: with
/// settings instead of GGUF keys, and the checkpoint's names of tensors.
pub(super) fn reword(family: &Family, translated: &Gguf, error: Error) -> Error {
    let checkpoints = || family.checkpoints.iter();
    match error {
        Error::Metadata { key, what } => match checkpoints().find_map(|checkpoint| checkpoint.setting_for(&key)) {
            Some(name) => {
                Error::InvalidFile { path: translated.path().join("config.json"), what: format!("`{name}` {what}") }
            }
            None => Error::Metadata { key, what },
        },
        Error::Tensor { tensor, what } => {
            let head = counted_head(family, translated);
            let name = checkpoints().find_map(|checkpoint| checkpoint.name_of(&tensor, head));
            Error::Tensor { tensor: name.unwrap_or(tensor), what }
        }
        other => other,
    }
}

impl Checkpoint {
    /// Returns the name of the setting that a GGUF key is made from.
    fn setting_for(&self, key: &str) -> Option<&'static str> {
        let (_architecture, key) = key.split_once('.')?;
        let setting = self.all_settings().find(|setting| setting.meaning.gguf_key() == Some(key));
        setting.map(|setting| setting.name).or_else(|| rope::setting_for(key))
    }
}
