//! The settings for loading a model, their defaults and ranges.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{MemoryPlan, Runner, vision_file::VisionFile};
use crate::{
    Error, Result,
    backend::{Backend, Device, ProgressCallback},
    generate::Limits,
    gguf::Gguf,
    image::size::Convention,
    kv_cache::CacheType,
    models::{self, Config},
    profile::{MAX_CHUNK, Profile},
};

/// The default context length, if the model was trained for more. Most machines have memory for its
/// cache.
const DEFAULT_CONTEXT: usize = 4096;

/// The largest number of tokens with logits in one step: of texts that are generated at once. Only
/// scoring whole texts needs more, and uses several steps. The logits of one token take about half
/// a megabyte, which is allocated when a step has the token.
const MAX_OUTPUTS: usize = 128;

/// The settings for loading a [`Runner`]; created by [`Runner::builder`].
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
    /// Whether a model that was trained for fewer tokens has a shorter context.
    pub(super) shortens_context: bool,
    pub(super) cache_type: Option<CacheType>,
    pub(super) prefill_chunk: Option<usize>,
    pub(super) memory_limit: Option<u64>,
    pub(super) max_waiting: Option<usize>,
    pub(super) copy_weights: bool,
    pub(super) recompute: bool,
    #[cfg(feature = "chat")]
    pub(super) chat_template: Option<Arc<str>>,
    pub(super) on_progress: Option<OnProgress>,
    pub(super) vision: VisionFile,
    pub(super) draft: Option<PathBuf>,
    pub(super) without_ngrams: bool,
    pub(super) without_mtp: bool,
    pub(super) profile: Option<Profile>,
    pub(super) convention: Convention,
}

/// The callback of [`RunnerBuilder::on_progress`].
#[derive(Clone)]
pub(super) struct OnProgress(pub Arc<ProgressCallback>);

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
}

impl RunnerBuilder {
    /// Sets the device. Default: the best GPU if this build supports GPUs and there is one, else
    /// the CPU.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Sets the number of CPU threads. Default: the number of cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the largest number of tokens in the sequence, of prompt and text together. Default:
    /// 4096, or the length that the model was trained for if it is less; more than that is an
    /// error. The cache grows with the sequence, so an unused length takes no memory. Models with
    /// LongRoPE (Phi-3 and Phi-4) encode positions for their original context unless a longer one
    /// is set here.
    pub fn context_length(mut self, tokens: usize) -> Self {
        self.context_length = Some(tokens);
        self
    }

    /// Sets the format of cached keys and values. Default: f16.
    pub fn cache_type(mut self, cache_type: CacheType) -> Self {
        self.cache_type = Some(cache_type);
        self
    }

    /// Sets the largest number of prompt tokens in one step. Larger chunks are faster up to a
    /// point, need more scratch memory, and delay a stop. Default: 256 on a CPU, 1,024 on a GPU
    /// with matrix units, 512 on other GPUs.
    pub fn prefill_chunk(mut self, tokens: usize) -> Self {
        self.prefill_chunk = Some(tokens);
        self
    }

    /// Sets the choices that the other settings leave open, measured by the example `tune` for
    /// instance. Default: the profile in the file [`Profile::path_for`] of the model, if there is
    /// one; [`DeviceInfo::profile`](crate::DeviceInfo::profile) names it. If that file was made for
    /// another device or model, it is not used, and the field says why. A profile that is set here
    /// has to fit: otherwise loading is an [`Error::Argument`]. `Profile::default()` leaves all
    /// choices to inkstone.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Sets the largest number of bytes that weights, scratch memory and the cache of a full
    /// context may take together, with the vision encoder for the largest picture. A model that
    /// needs more is rejected before it is loaded: a shorter
    /// [`context_length`](Self::context_length) needs less. Default: no limit.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Sets the largest number of requests that wait for memory of the cache, because the runner's
    /// clones have all that the [`memory_limit`](Self::memory_limit) leaves. One more is refused
    /// with [`Error::Busy`](crate::Error::Busy). Default: 1024.
    ///
    /// Requests are admitted in the order of their arrival and
    /// [`priority`](crate::GenerateOptions::priority), and not refused later.
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = Some(requests);
        self
    }

    /// Sets whether the weights are copied to memory with ordinary reads, so that the model's files
    /// do not stay mapped. Default: false.
    ///
    /// By default, the files are mapped while the model loads. On a CPU, every step then reads the
    /// tensors that [`MemoryPlan::mapped`] counts from the mapping; on a GPU, there are none. This
    /// loads faster, and programs that use the same file share its memory. But if a file is
    /// shortened while it is mapped, the system ends the process (with SIGBUS on Unix), and if it
    /// is overwritten, the model computes with the new bytes. Therefore replace a model by renaming
    /// a new file. Copy the weights if other programs write to the files, or if they are on a
    /// network share or a removable disk.
    ///
    /// If a file is shortened while its weights are copied, loading fails with [`Error::Io`]. After
    /// loading, the files can be changed or removed. Only their headers are read from a mapping,
    /// when they are opened. The model takes the same memory either way, [`MemoryPlan::weights`].
    pub fn copy_weights(mut self, copy: bool) -> Self {
        self.copy_weights = copy;
        self
    }

    /// Sets the chat template, in Jinja as transformers' `apply_chat_template` takes it. Default:
    /// the template of the model's file; base models have none.
    ///
    /// The template is parsed when the model is loaded. It has to write the begin-of-sequence token
    /// (`{{ bos_token }}`) if the model uses one.
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

    /// Sets a callback for the progress of loading. Its arguments are the number of bytes of
    /// weights that are ready, and the number of all bytes. It is called at the start, every few
    /// megabytes and at the end, in the loading thread. If it returns false, loading ends with
    /// [`Error::Cancelled`], all memory is freed, and the model can be loaded again.
    ///
    /// Weights that are used from the mapped file count as ready at the end. If a GPU fails and the
    /// CPU replaces it, the count starts again.
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

    /// Sets the file of the model's vision encoder, `mmproj-*.gguf`, so that prompts can have
    /// images. Default: the file in the model's folder whose name starts with `mmproj` and ends
    /// with `.gguf`, of which several are an error, or else the encoder in the model's directory of
    /// safetensors. If it cannot be used with the model, the model is loaded without vision, and a
    /// prompt with an image is an [`Error::VisionEncoder`].
    ///
    /// ```no_run
    /// use inkstone::{GenerateOptions, Image, Message, Runner};
    ///
    /// let mut runner = Runner::builder()
    ///     .vision("mmproj-Qwen3-VL-2B-Instruct-F16.gguf")
    ///     .from_gguf("Qwen3-VL-2B-Instruct-Q4_K_M.gguf")?;
    /// let message = Message::user("What is this?").image(Image::open("cat.jpg")?);
    /// println!("{}", runner.chat(&[message], &GenerateOptions::default())?.into_text()?);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn vision(mut self, path: impl Into<PathBuf>) -> Self {
        self.vision = VisionFile::At(path.into());
        self
    }

    /// Loads the model for text alone, even if the file of a vision encoder is beside it. This
    /// saves the encoder's memory.
    pub fn without_vision(mut self) -> Self {
        self.vision = VisionFile::Without;
        self
    }

    /// Sets the file of a smaller model with the same vocabulary, which drafts tokens for this one;
    /// a step of this model then verifies several. It runs on the same device, and takes the
    /// memory [`MemoryPlan::draft`]. The text stays the same; [`Summary::speculation`] says how
    /// many drafts were accepted, and [`GenerateOptions::speculation`] bounds them. Default: none.
    /// Repetitions in the text are drafted without a model, and a model with a head for multi-token
    /// prediction (MTP) drafts itself. If the file has only such a head (`mtp-*.gguf`), the model
    /// gets it.
    ///
    /// ```
    /// use inkstone::{GenerateOptions, Runner};
    ///
    /// # let storyteller = "tests/data/storyteller/storyteller.gguf";
    /// # let small = storyteller;
    /// let mut runner = Runner::builder().draft(small).from_gguf(storyteller)?;
    /// let mut text = runner.generate("Once upon a time", &GenerateOptions::default())?;
    /// while let Some(piece) = text.next() {
    ///     print!("{}", piece?);
    /// }
    /// println!("{:.1} tokens per step", text.summary().speculation.tokens_per_step());
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// [`Summary::speculation`]: crate::Summary::speculation
    /// [`GenerateOptions::speculation`]: crate::GenerateOptions::speculation
    pub fn draft(mut self, path: impl Into<PathBuf>) -> Self {
        self.draft = Some(path.into());
        self
    }

    /// Leaves out drafts from repetitions, so that only the model's own head, a
    /// [`draft`](Self::draft) model and the drafters of a [`Generation`](crate::Generation) draft.
    pub fn without_ngrams(mut self) -> Self {
        self.without_ngrams = true;
        self
    }

    /// Leaves out the head for multi-token prediction (MTP) that some files of Qwen3.5 have. With
    /// it, the model drafts tokens itself. It takes the memory of one more layer and a little time
    /// for each prompt, and on a GPU, steps without drafts wait for its rows.
    pub fn without_mtp(mut self) -> Self {
        self.without_mtp = true;
        self
    }

    /// Sets the implementation that is followed where transformers and llama.cpp compute images
    /// differently. Default: transformers. Meant for comparisons with llama.cpp.
    #[doc(hidden)]
    pub fn vision_convention(mut self, convention: Convention) -> Self {
        self.convention = convention;
        self
    }

    /// Sets whether every step computes the whole sequence again, without the cache. The results
    /// are the same except for rounding. It is slow, and meant for tests of the cache.
    #[doc(hidden)]
    pub fn recompute(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }

    /// Returns the memory that a model will take. Reads only the headers of its files.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path), except for the memory limit.
    pub fn plan(&self, path: impl AsRef<Path>) -> Result<MemoryPlan> {
        let mut gguf = models::open(path)?;
        let draft = self.open_draft(&mut gguf)?;
        self.with_backend(|backend| {
            let mut prepared = self.prepare(gguf.clone(), backend)?;
            self.prepare_draft(draft.as_ref(), &mut prepared)?;
            Ok(prepared.memory)
        })
    }

    /// Loads a model from a GGUF file. For a split model, pass the first file. The file is mapped
    /// into memory, so it must not be changed or shortened while it loads, nor afterwards if
    /// [`MemoryPlan::mapped`] is not 0; see [`copy_weights`](Self::copy_weights).
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::InvalidFile`] for the file; [`Error::Architecture`],
    /// [`Error::Metadata`], [`Error::Tensor`] and [`Error::Tokenizer`] for its content;
    /// [`Error::Argument`] for a setting out of its range; [`Error::ChatTemplate`] for a
    /// [`chat_template`](Self::chat_template) that does not parse; [`Error::Memory`] if the model
    /// exceeds the memory limit; [`Error::Cancelled`] if [`on_progress`](Self::on_progress) returns
    /// false.
    pub fn from_gguf(&self, path: impl AsRef<Path>) -> Result<Runner> {
        self.load(Gguf::open(path)?)
    }

    /// Loads a model from a directory that Hugging Face's transformers has written: `config.json`,
    /// `tokenizer.json`, and tensors in `model.safetensors` or in the files that
    /// `model.safetensors.index.json` lists. The tensors are mapped, and on a CPU their matrices
    /// stay mapped; see [`from_gguf`](Self::from_gguf). A vision encoder is loaded with the text
    /// model, with the settings in `preprocessor_config.json` or `processor_config.json`. If it
    /// cannot be used, a prompt with an image is an [`Error::VisionEncoder`].
    ///
    /// # Errors
    /// As [`from_gguf`](Self::from_gguf); [`Error::InvalidFile`] also for a setting in
    /// `config.json` that is not supported.
    #[cfg(feature = "safetensors")]
    pub fn from_safetensors(&self, directory: impl AsRef<Path>) -> Result<Runner> {
        self.load(models::open_directory(directory.as_ref())?)
    }

    /// Loads a model from a path: a directory as [`from_safetensors`](Self::from_safetensors) does,
    /// a file as [`from_gguf`](Self::from_gguf) does.
    ///
    /// # Errors
    /// As these functions; [`Error::MissingFeature`] for a directory if the feature `safetensors`
    /// is off.
    pub fn from_path(&self, path: impl AsRef<Path>) -> Result<Runner> {
        self.load(models::open(path)?)
    }

    /// Returns the requested context length, which the model may not support.
    pub(super) fn positions(&self) -> usize {
        self.context_length.unwrap_or(DEFAULT_CONTEXT)
    }

    /// Sets the context length for a model that may be trained for fewer tokens, and then has
    /// these.
    pub(super) fn shortened_to(self, tokens: usize) -> Self {
        Self { context_length: Some(tokens), shortens_context: true, ..self }
    }

    pub(super) fn context_length_for(&self, config: &Config) -> Result<usize> {
        let trained = config.context_length;
        match self.context_length {
            None => Ok(trained.min(self.positions())),
            Some(tokens) if self.shortens_context && tokens > 0 => Ok(tokens.min(trained)),
            Some(0) => Err(Error::argument("context_length", "must be at least 1")),
            Some(tokens) if tokens > trained => Err(Error::argument(
                "context_length",
                format!("is {tokens}, but the model was trained for at most {trained}"),
            )),
            Some(tokens) => Ok(tokens),
        }
    }

    /// Returns the sizes that the executable is compiled for.
    /// `whole` is the number of tokens that a step must be able to compute, `chunk` the prefill
    /// chunk if it is chosen.
    pub(super) fn limits_for(
        &self,
        config: &Config,
        context_length: usize,
        whole: usize,
        chunk: Option<usize>,
        backend: &dyn Backend,
    ) -> Result<Limits> {
        let chunk = chunk.unwrap_or_else(|| backend.prefill_chunk());
        if !(1..=MAX_CHUNK).contains(&chunk) {
            let what = format!("is {chunk}, but must be from 1 to {MAX_CHUNK}");
            return Err(Error::argument("prefill_chunk", what));
        }
        let max_tokens = chunk.max(whole).min(context_length);
        Ok(Limits { vocab_size: config.vocab_size, max_tokens, max_outputs: max_tokens.min(MAX_OUTPUTS) })
    }
}
