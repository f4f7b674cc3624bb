//! How a model is to be loaded.

use std::path::Path;

use super::{MemoryPlan, Runner};
use crate::{
    Error, Result,
    backend::{Adapter, Backend, Device},
    generate::Limits,
    gguf::Gguf,
    kv_cache::CacheType,
    models::{self, Config},
};

/// The context length where none is asked for, if the model was trained for more: a cache that most machines can hold.
const DEFAULT_CONTEXT: usize = 4096;
/// A longer chunk is no faster, and its scratch memory may be more than there is.
const MAX_CHUNK: usize = 1 << 14;

/// The most tokens whose logits one step computes. A step that wants more is split, which happens only to callers that
/// score whole texts. Each costs a row as wide as the vocabulary, some half a megabyte.
const MAX_OUTPUTS: usize = 16;

/// Settings for loading a [`Runner`]; made by [`Runner::builder`].
///
/// ```no_run
/// use inkstone::{CacheType, Runner};
///
/// let builder = Runner::builder().threads(4).context_length(8192).cache_type(CacheType::Q8_0);
/// println!("{}", builder.plan("Qwen3-4B-Q4_K_M.gguf")?);
/// let runner = builder.from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RunnerBuilder {
    pub(super) device: Device,
    pub(super) threads: Option<usize>,
    pub(super) context_length: Option<usize>,
    pub(super) cache_type: CacheType,
    pub(super) prefill_chunk: Option<usize>,
    pub(super) memory_limit: Option<u64>,
    pub(super) recompute: bool,
}

impl RunnerBuilder {
    /// Where the model runs. By default the best GPU where this build looks for one, else the CPU.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// How many CPU threads work on a step. By default as many as the machine has cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// The most tokens that the sequence can hold, prompt and text together. By default 4096, or what the model was
    /// trained for where that is less; asking for more than that is an error. The cache grows with the sequence, so a
    /// length that is not used costs nothing. What LongRoPE has stretched to a longer context (Phi-3 and Phi-4) encodes positions
    /// for the shorter one unless more is asked for here.
    pub fn context_length(mut self, tokens: usize) -> Self {
        self.context_length = Some(tokens);
        self
    }

    /// The format of cached keys and values. By default half precision.
    pub fn cache_type(mut self, cache_type: CacheType) -> Self {
        self.cache_type = cache_type;
        self
    }

    /// The most tokens of a prompt that are computed at once. More are faster up to a point, take more scratch memory,
    /// and make a stop wait longer. By default 256 on a CPU and 512 on a GPU.
    pub fn prefill_chunk(mut self, tokens: usize) -> Self {
        self.prefill_chunk = Some(tokens);
        self
    }

    /// The most bytes that weights, scratch and a full context's cache may take together: a model that needs more is
    /// refused before it is loaded. By default there is no limit.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Whether every token is computed from the whole sequence anew, without what the cache holds. The results are the
    /// same but for rounding; it is slow, and there to test the cached path.
    pub fn recompute(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }

    /// The memory that the model will take. Reads the headers of its files only.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path), but for the memory limit.
    pub fn plan(&self, path: impl AsRef<Path>) -> Result<MemoryPlan> {
        let gguf = models::open(path)?;
        self.with_backend(|backend| Ok(self.prepare(gguf.clone(), backend)?.memory))
    }

    /// Loads the model in this file; of a split model, the first part.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::InvalidFile`] for the file; [`Error::Architecture`], [`Error::Metadata`],
    /// [`Error::Tensor`] and [`Error::Tokenizer`] for what is in it; [`Error::Argument`] for a setting out of its range;
    /// [`Error::Memory`] past the memory limit.
    pub fn from_gguf(&self, path: impl AsRef<Path>) -> Result<Runner> {
        self.load(Gguf::open(path)?)
    }

    /// Loads the model in this directory, as Hugging Face's transformers writes it: `config.json`, `tokenizer.json`, and
    /// tensors in `model.safetensors` or in the files that `model.safetensors.index.json` lists.
    ///
    /// # Errors
    /// As [`from_gguf`](Self::from_gguf); [`Error::InvalidFile`] also names what `config.json` asks for that is not built.
    #[cfg(feature = "safetensors")]
    pub fn from_safetensors(&self, directory: impl AsRef<Path>) -> Result<Runner> {
        self.load(models::open_directory(directory.as_ref())?)
    }

    /// Loads the model at this path: a directory as [`from_safetensors`](Self::from_safetensors), a file as
    /// [`from_gguf`](Self::from_gguf).
    ///
    /// # Errors
    /// As these; [`Error::MissingFeature`] for a directory, where the feature `safetensors` is off.
    pub fn from_path(&self, path: impl AsRef<Path>) -> Result<Runner> {
        self.load(models::open(path)?)
    }

    /// The most positions that a sequence may have, if the model was trained for so many.
    pub(super) fn positions(&self) -> usize {
        self.context_length.unwrap_or(DEFAULT_CONTEXT)
    }

    pub(super) fn context_length_for(&self, config: &Config) -> Result<usize> {
        let trained = config.context_length;
        match self.context_length {
            None => Ok(trained.min(self.positions())),
            Some(0) => Err(Error::argument("context_length", "is 0, but must be at least 1")),
            Some(tokens) if tokens > trained => {
                Err(Error::argument("context_length", format!("is {tokens}, but the model was trained for {trained}")))
            }
            Some(tokens) => Ok(tokens),
        }
    }

    /// What executables are compiled for.
    pub(super) fn limits_for(&self, config: &Config, context_length: usize, backend: &dyn Backend) -> Result<Limits> {
        let chunk = self.prefill_chunk.unwrap_or_else(|| backend.prefill_chunk());
        if !(1..=MAX_CHUNK).contains(&chunk) {
            let what = format!("is {chunk}, but must be from 1 to {MAX_CHUNK}");
            return Err(Error::argument("prefill_chunk", what));
        }
        let max_tokens = chunk.min(context_length);
        Ok(Limits { vocab_size: config.vocab_size, max_tokens, max_outputs: max_tokens.min(MAX_OUTPUTS) })
    }

    #[cfg(feature = "cpu")]
    pub(super) fn cpu(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(crate::backend::cpu::Cpu::new(self.threads)?))
    }

    #[cfg(not(feature = "cpu"))]
    pub(super) fn cpu(&self) -> Result<Box<dyn Backend>> {
        Err(Error::NoDevice("this program was built without the CPU: enable the feature `cpu` of inkstone".into()))
    }

    #[cfg(any(feature = "wgpu", feature = "metal"))]
    pub(super) fn gpu(&self, adapter: &Adapter) -> Result<Box<dyn Backend>> {
        Ok(Box::new(crate::backend::webgpu::Gpu::new(adapter)?))
    }

    #[cfg(not(any(feature = "wgpu", feature = "metal")))]
    pub(super) fn gpu(&self, _: &Adapter) -> Result<Box<dyn Backend>> {
        Err(Error::NoDevice("this program was built without GPUs: enable the feature `wgpu` of inkstone".into()))
    }
}
