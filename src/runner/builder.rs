//! How a model is to be loaded.

use std::{fmt, path::Path, sync::Arc};

use super::{MemoryPlan, Runner};
use crate::{
    Error, Result,
    backend::{Backend, Device, ProgressCallback},
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
    pub(super) copy_weights: bool,
    pub(super) recompute: bool,
    #[cfg(feature = "chat")]
    pub(super) chat_template: Option<Arc<str>>,
    pub(super) on_progress: Option<OnProgress>,
}

/// A callback that is told how loading goes on.
#[derive(Clone)]
pub(super) struct OnProgress(pub Arc<ProgressCallback>);

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
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

    /// Sets whether the weights are copied to memory with ordinary reads, so that nothing of the model's files stays
    /// mapped. By default they are not.
    ///
    /// By default the files are mapped while the model loads. On a CPU the tensors that [`MemoryPlan::mapped`] counts
    /// are then read from the mapping in every step; on a GPU none are. This loads faster, and programs that use the
    /// same file share its memory. But if a file is shortened while it is mapped, the system ends the process (with
    /// SIGBUS on Unix), and if it is overwritten, the model computes with what was written: replace a model by renaming
    /// a new file. Copy the weights where other programs write to the files, or where a share of a network or a
    /// removable disk may go away.
    ///
    /// A file that is shortened while its weights are copied is an [`Error::Io`]; once the model is loaded, its files
    /// can be changed or removed. Only their headers are read from a mapping, as they are opened. The memory that the
    /// model takes is the same, [`MemoryPlan::weights`].
    pub fn copy_weights(mut self, copy: bool) -> Self {
        self.copy_weights = copy;
        self
    }

    /// Sets the chat template, Jinja as `apply_chat_template` of transformers takes it, in the
    /// place of the model's own: for a base model, which has none, or to override what the file
    /// has. By default the model's own.
    ///
    /// The template is parsed when the model is loaded. It writes the begin-of-sequence token
    /// itself (`{{ bos_token }}`) where the model wants one.
    ///
    /// ```
    /// use inkstone::{GenerateOptions, Message, Runner};
    ///
    /// let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
    /// let mut runner =
    ///     Runner::builder().chat_template(template).from_gguf("tests/data/storyteller/storyteller.gguf")?;
    /// let options = GenerateOptions { max_tokens: Some(8), ..Default::default() };
    /// let text: String = runner.chat(&[Message::user("Hello!")], &options)?.collect::<Result<_, _>>()?;
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    #[cfg(feature = "chat")]
    pub fn chat_template(mut self, source: impl Into<String>) -> Self {
        self.chat_template = Some(source.into().into());
        self
    }

    /// Calls `callback` while the model is loaded, with the bytes of weights that are ready and
    /// those that there are: at the start, every few megabytes, and at the end, in the thread that
    /// loads. Where it returns false, loading ends with [`Error::Cancelled`], all memory is given
    /// back, and the model can be loaded again.
    ///
    /// Weights that are computed on where the file has them count as ready at the end. Where a GPU
    /// turns out to be unfit and the CPU takes its place, the count starts again.
    ///
    /// ```no_run
    /// use inkstone::{Error, Runner, StopHandle};
    ///
    /// let stop = StopHandle::new(); // for a button, say
    /// let cancel = stop.clone();
    /// let builder = Runner::builder().on_progress(move |ready, total| {
    ///     println!("{} of {} MB", ready >> 20, total >> 20);
    ///     !cancel.is_stopped()
    /// });
    /// match builder.from_gguf("Qwen3-4B-Q4_K_M.gguf") {
    ///     Err(Error::Cancelled) => println!("not loaded"),
    ///     runner => drop(runner?),
    /// }
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn on_progress(mut self, callback: impl Fn(u64, u64) -> bool + Send + Sync + 'static) -> Self {
        self.on_progress = Some(OnProgress(Arc::new(callback)));
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

    /// Loads the model in this file; of a split model, the first part. The file is mapped into memory, so it must not be
    /// changed or shortened meanwhile, nor afterwards where [`MemoryPlan::mapped`] is not 0; see
    /// [`copy_weights`](Self::copy_weights).
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::InvalidFile`] for the file; [`Error::Architecture`],
    /// [`Error::Metadata`], [`Error::Tensor`] and [`Error::Tokenizer`] for what is in it;
    /// [`Error::Argument`] for a setting out of its range; [`Error::ChatTemplate`] for a
    /// [`chat_template`](Self::chat_template) that does not parse; [`Error::Memory`] past the
    /// memory limit; [`Error::Cancelled`] where [`on_progress`](Self::on_progress) says so.
    pub fn from_gguf(&self, path: impl AsRef<Path>) -> Result<Runner> {
        self.load(Gguf::open(path)?)
    }

    /// Loads the model in this directory, as Hugging Face's transformers writes it: `config.json`, `tokenizer.json`, and
    /// tensors in `model.safetensors` or in the files that `model.safetensors.index.json` lists. The tensors are mapped,
    /// and on a CPU their matrices stay so: see [`from_gguf`](Self::from_gguf).
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
}
