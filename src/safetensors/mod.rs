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

impl Directory {
    /// Reads and checks the files in the directory at `path`, and maps the tensors.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::InvalidFile`] if a file is missing or
    /// invalid, [`Error::Tensor`] for a tensor in an unsupported format.
    #[cfg(feature = "safetensors")]
    pub fn open(path: &Path) -> Result<Self> {
        let invalid = |what: &str| Error::InvalidFile { path: path.into(), what: what.into() };
        if !std::fs::metadata(path).map_err(|source| Error::Io { path: path.into(), source })?.is_dir() {
            return Err(invalid("is not a directory: pass the directory with config.json and the .safetensors files"));
        }
        let config = json::optional(&path.join("config.json"), json::MAX_CONFIG)?.ok_or_else(|| {
            invalid("contains no config.json: pass a .gguf file, or a model directory saved by transformers")
        })?;
        let tensors = shards::tensors(path)?;
        let tokenizer = tokenizer::keys(path, &config)?;
        Ok(Self { config, tensors, tokenizer })
    }

    /// Returns an error, since this build lacks the feature `safetensors`.
    ///
    /// # Errors
    /// [`Error::MissingFeature`], always.
    #[cfg(not(feature = "safetensors"))]
    pub fn open(path: &Path) -> Result<Self> {
        let what = format!("{}: is a directory of safetensors", path.display());
        Err(Error::MissingFeature { feature: "safetensors", what })
    }
}
