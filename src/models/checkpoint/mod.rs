//! A checkpoint of transformers in; what a GGUF file of the same model would hold out.
//!
//! Each family says in one table ([`Checkpoint`]) what the converter to GGUF says in code: how `config.json` names what
//! GGUF has a key for, which of its settings are not built, and how the tensors are called. Nothing past this module knows
//! of checkpoints. The bytes of tensors stay mapped where they lie; only vectors that are stored in another form, and divisors
//! of rotary frequencies, which a checkpoint has no tensors for, are made in memory.
//!
//! The tables follow `configuration_*.py` and `modeling_*.py` of transformers 5. Whatever a family's code there reads from
//! the config is in its table; what it does not read means nothing there either.

mod config;
mod rope;
mod table;
mod tensors;

use std::path::Path;

pub(super) use config::Settings;
pub(super) use table::{
    BIASES, Checkpoint, EXPERTS, FULL_ATTENTION, Key, KeyValues, Made, Means, Need, SILU, SIZES, TENSORS, Tensor,
    check, float, key, less_one, made, only, size, tensor,
};

use super::{FAMILIES, Family, unbuilt};
use crate::{
    Error, Result,
    gguf::{Gguf, Value},
    safetensors::Directory,
};

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
    let settings = Settings::new(path, &directory.config)?;
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
