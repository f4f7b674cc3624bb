//! Reads model directories as Hugging Face's transformers writes them: config.json, safetensors
//! files and a tokenizer.
//!
//! A [`Directory`] contains the parsed config, the mapped tensors under their original names, and
//! the tokenizer under GGUF keys. As with GGUF files, every count, length, offset and name is
//! checked here, once, before it is used. `models::checkpoint` interprets the config and the
//! tensors, and translates a [`Directory`] into a [`Gguf`](crate::gguf::Gguf).

#[cfg(feature = "safetensors")]
mod json;
#[cfg(feature = "safetensors")]
mod shards;
#[cfg(feature = "safetensors")]
mod tokenizer;

use std::path::Path;

use serde_json::{Map as Object, Value as Json};

use crate::{
    Error, Result,
    gguf::{TensorInfo, Value},
};

/// The content of a model directory.
pub(crate) struct Directory {
    /// Content of `config.json`.
    pub config: Object<String, Json>,
    /// Tensors of all safetensors files.
    pub tensors: Vec<TensorInfo>,
    /// Content of the tokenizer's files, under GGUF keys.
    pub tokenizer: Vec<(String, Value)>,
}

#[cfg(feature = "safetensors")]
impl Directory {
    /// Reads and checks the files in the directory at `path`, and maps the tensors.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::InvalidFile`] if a file is missing or
    /// invalid, [`Error::Tensor`] for a tensor in an unsupported format.
    pub fn open(path: &Path) -> Result<Self> {
        let config = Self::config(path)?;
        let tensors = Self::tensors(path)?;
        let tokenizer = tokenizer::keys(path, &config)?;
        Ok(Self { config, tensors, tokenizer })
    }

    /// Reads the `config.json` of the directory at `path`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn config(path: &Path) -> Result<Object<String, Json>> {
        let invalid = |what: &str| Error::InvalidFile { path: path.into(), what: what.into() };
        if !std::fs::metadata(path).map_err(|source| Error::Io { path: path.into(), source })?.is_dir() {
            return Err(invalid("is not a directory: pass the directory with config.json and the .safetensors files"));
        }
        Self::object(path, "config.json")?.ok_or_else(|| {
            invalid("contains no config.json: pass a .gguf file, or a model directory saved by transformers")
        })
    }

    /// Maps the tensors of the directory at `path`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn tensors(path: &Path) -> Result<Vec<TensorInfo>> {
        shards::tensors(path)
    }

    /// Reads a file of settings in the directory at `path`. Returns `None` if the
    /// directory has no file of this name.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn object(path: &Path, file: &str) -> Result<Option<Object<String, Json>>> {
        json::optional(&path.join(file), json::MAX_CONFIG)
    }
}

/// Without the feature `safetensors`, every function is an error.
#[cfg(not(feature = "safetensors"))]
impl Directory {
    pub fn open(path: &Path) -> Result<Self> {
        Err(missing_feature(path))
    }

    pub fn config(path: &Path) -> Result<Object<String, Json>> {
        Err(missing_feature(path))
    }

    pub fn tensors(path: &Path) -> Result<Vec<TensorInfo>> {
        Err(missing_feature(path))
    }

    pub fn object(path: &Path, _: &str) -> Result<Option<Object<String, Json>>> {
        Err(missing_feature(path))
    }
}

#[cfg(not(feature = "safetensors"))]
fn missing_feature(path: &Path) -> Error {
    let what = format!("{}: is a directory of safetensors", path.display());
    Error::MissingFeature { feature: "safetensors", what }
}
