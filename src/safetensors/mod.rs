//! Reads directories of safetensors, as Hugging Face's transformers writes them: a config, files of tensors, a tokenizer.
//!
//! In comes a directory, out comes a [`Directory`]: the config as it stands, the tensors by the names that they have there,
//! mapped where they lie, and the tokenizer under GGUF's keys. As with GGUF files, every count, length, offset and name is
//! checked here, once, before it is used. What the config and the tensors mean is not known here: `models` says it, and
//! makes of a [`Directory`] what the rest reads.

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

/// A model as transformers stores it.
pub(crate) struct Directory {
    /// `config.json`.
    pub config: Object<String, Json>,
    /// The tensors of all files.
    pub tensors: Vec<TensorInfo>,
    /// What the files about the tokenizer say, under GGUF's keys.
    pub tokenizer: Vec<(String, Value)>,
}

impl Directory {
    /// Reads and checks what is in the directory at `path`; maps the tensors.
    ///
    /// # Errors
    /// [`Error::Io`] where a file cannot be read, [`Error::InvalidFile`] where one is missing or unsound,
    /// [`Error::Tensor`] for a tensor in a format that is not computed on.
    #[cfg(feature = "safetensors")]
    pub fn open(path: &Path) -> Result<Self> {
        let invalid = |what: &str| Error::InvalidFile { path: path.into(), what: what.into() };
        if !std::fs::metadata(path).map_err(|source| Error::Io { path: path.into(), source })?.is_dir() {
            return Err(invalid("is not a directory: name the one that holds config.json and the .safetensors files"));
        }
        let config = json::optional(&path.join("config.json"), json::MAX_CONFIG)?.ok_or_else(|| {
            invalid("is a directory without config.json: name a .gguf file, or a directory as transformers writes it")
        })?;
        let tensors = shards::tensors(path)?;
        let tokenizer = tokenizer::keys(path, &config)?;
        Ok(Self { config, tensors, tokenizer })
    }

    /// Refuses the directory: this build cannot read it.
    ///
    /// # Errors
    /// [`Error::MissingFeature`] always.
    #[cfg(not(feature = "safetensors"))]
    pub fn open(path: &Path) -> Result<Self> {
        let what = format!("{}: is a directory, as transformers writes models", path.display());
        Err(Error::MissingFeature { feature: "safetensors", what })
    }
}
