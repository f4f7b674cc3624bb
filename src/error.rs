//! The error type. Messages name the file, key, tensor or argument, and say what to do.

use std::{fmt, io, path::PathBuf, sync::Arc};

use crate::tool_call::ToolCall;

/// A `Result` with [`Error`] as its default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reports why a call failed.
///
/// The message is complete: it includes the operating system's message if a file cannot be read, so
/// no variant has a [`source`](std::error::Error::source), and reports print no cause twice.
/// `Debug` prints the same message, for programs whose `main` returns [`Result`]. To handle an
/// error, match its variant and fields.
///
/// ```
/// use std::io;
///
/// use inkstone::{Error, Runner};
///
/// let error = Runner::from_gguf("missing.gguf").unwrap_err();
/// assert!(matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound));
/// assert_eq!(format!("{error:?}"), error.to_string());
/// assert!(error.to_string().starts_with("missing.gguf: "));
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened, mapped or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error, which the message includes.
        // Written `r#source`, as thiserror makes a `source()` of a field named `source`.
        r#source: io::Error,
    },
    /// A model file or directory is malformed.
    #[error("{}: {what}", path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// A metadata key is missing, has the wrong type, or has a value that is not supported.
    #[error("metadata key `{key}`: {what}")]
    Metadata {
        /// The key, for example `qwen3.block_count`.
        key: String,
        /// The problem.
        what: String,
    },
    /// A tensor is missing, has the wrong shape, or is stored in a format that is not supported.
    #[error("tensor `{tensor}`: {what}")]
    Tensor {
        /// The tensor's name, for example `blk.0.attn_q.weight`.
        tensor: String,
        /// The problem.
        what: String,
    },
    /// The model's architecture is not supported.
    #[error("architecture `{name}` is {}; supported: {supported}", if *known { "not supported yet" } else { "unknown" })]
    Architecture {
        /// `general.architecture` of the file.
        name: String,
        /// Whether other programs support an architecture of this name.
        known: bool,
        /// The supported architectures, comma-separated.
        supported: String,
    },
    /// A fault in this crate, such as an invalid graph of ops or a panic in a kernel.
    #[error("internal error in inkstone: {0}: please report it with the model and the call")]
    Internal(String),
    /// The tokenizer could not be built, or could not encode or decode a text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The chat template is missing, has a syntax error, or could not be rendered.
    #[error("chat template: {0}")]
    ChatTemplate(String),
    /// A schema, regular expression or grammar is malformed or not supported.
    #[error("grammar: {0}")]
    Grammar(String),
    /// Generation ended before the text was a complete value of the requested type.
    #[error("the text of a `{form}` ended before it was complete ({stop}): {what}: `{text}`")]
    Incomplete {
        /// The name of the type, without its path.
        form: String,
        /// The [`StopReason`](crate::StopReason), such as `TokenLimit`.
        stop: String,
        /// What to change to get a complete text.
        what: String,
        /// The text so far.
        text: String,
    },
    /// A generated text is complete, but is not a value of the requested type.
    #[error("the text is not a `{form}`: {what}: `{text}`")]
    Form {
        /// The name of the type, without its path.
        form: String,
        /// The reason, and what to do.
        what: String,
        /// The whole text.
        text: String,
    },
    /// The model called a tool with malformed text, an unknown name, or arguments that the tool's
    /// schema does not allow.
    #[error("the tool call {what}: `{text}`")]
    ToolCall {
        /// The problem.
        what: String,
        /// The text of the call.
        text: String,
        /// The call, if it could be parsed.
        call: Option<Box<ToolCall>>,
    },
    /// An image is malformed, of a format that is not supported, or not fit for the model.
    #[error("{}: {what}", image_name(path))]
    Image {
        /// The file, if the image was opened from one.
        path: Option<PathBuf>,
        /// The problem.
        what: String,
    },
    /// An image file states more pixels than allowed.
    #[error(
        "{}: is {width} x {height} pixels, but at most {max_pixels} are allowed, and 65535 in a row or column: shrink the image, or raise the limit with `Image::options().max_pixels(..)`",
        image_name(path)
    )]
    ImageTooLarge {
        /// The file, if the image was opened from one.
        path: Option<PathBuf>,
        /// The number of pixels in a row.
        width: usize,
        /// The number of rows.
        height: usize,
        /// The largest number of pixels.
        max_pixels: usize,
    },
    /// An argument is out of range or does not fit the model.
    #[error("{name}: {what}")]
    Argument {
        /// The argument or option.
        name: &'static str,
        /// The problem.
        what: String,
    },
    /// A model was loaded without the vision encoder beside it or in its directory, which cannot be
    /// used with the model.
    #[error("{}: this vision encoder cannot be used with the model: {error}", path.display())]
    VisionEncoder {
        /// The file, or the directory.
        path: PathBuf,
        /// The problem with the encoder.
        error: Arc<Error>,
    },
    /// A saved session could not be written or read, is damaged, or is of another model.
    #[error("session: {0}")]
    Session(String),
    /// One request of a batch failed.
    #[error("request {index}: {error}")]
    Request {
        /// The index of the request in the batch.
        index: usize,
        /// The error of the request.
        error: Box<Error>,
    },
    /// The context has too few free positions for the tokens.
    #[error("{}", context_full(*tokens, *free, *context, *trained))]
    ContextFull {
        /// The number of tokens to add.
        tokens: usize,
        /// The number of free positions.
        free: usize,
        /// The length of the context in positions.
        context: usize,
        /// The context length that the model was trained for, if known.
        trained: Option<usize>,
    },
    /// The memory limit is too low for the model, or the KV cache is full.
    #[error(
        "{what} needs {needed} bytes, but the memory limit leaves {limit}: close sequences, use a smaller model, context or prefill chunk, or raise the limit"
    )]
    Memory {
        /// The use of the memory.
        what: &'static str,
        /// The bytes needed.
        needed: u64,
        /// The bytes that the limit leaves for this use.
        limit: u64,
    },
    /// Too many requests wait for memory of the cache.
    #[error(
        "{limit} requests wait for memory of the cache, and no more are allowed: try again later, or raise `max_waiting` or the memory limit"
    )]
    Busy {
        /// The largest number of requests that wait.
        limit: usize,
    },
    /// The system has too little memory.
    #[error("could not allocate {bytes} bytes for {what}: use a smaller model, context or prefill chunk")]
    OutOfMemory {
        /// The use of the memory.
        what: &'static str,
        /// The size of the allocation in bytes.
        bytes: u64,
    },
    /// No GPU was found, or none with the given name.
    #[error("{0}")]
    NoDevice(String),
    /// A GPU or its driver failed.
    #[error("{device}: {what}")]
    Device {
        /// The GPU's name.
        device: String,
        /// The problem.
        what: String,
    },
    /// The caller cancelled loading.
    #[error("loading was cancelled by the callback of `on_progress`")]
    Cancelled,
    /// A GPU has too little memory.
    #[error(
        "{device} could not allocate {needed} bytes for {what}: use a smaller model, context or prefill chunk, or the CPU"
    )]
    DeviceMemory {
        /// The GPU's name.
        device: String,
        /// The use of the memory.
        what: String,
        /// The size of the allocation in bytes.
        needed: u64,
    },
    /// The thread of an [`AsyncRunner`](crate::AsyncRunner) could not be started, or ended.
    #[error("the runner's thread {0}")]
    Thread(String),
    /// The model needs a Cargo feature of this crate that is off.
    #[error("{what}, which needs the feature `{feature}` of inkstone: enable it in the program's Cargo.toml")]
    MissingFeature {
        /// The feature, for example `safetensors`.
        feature: &'static str,
        /// The file or directory, and its part that needs the feature.
        what: String,
    },
    /// The model or device does not support the call.
    #[error("{0}")]
    Unsupported(String),
}

/// Prints the message, for `main() -> Result<()>`, `unwrap` and `expect`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the name of an image for messages.
fn image_name(path: &Option<PathBuf>) -> std::borrow::Cow<'_, str> {
    path.as_ref().map_or("image".into(), |path| path.to_string_lossy())
}

/// Returns the message of [`Error::ContextFull`], with the suggestions that help in this case.
fn context_full(tokens: usize, free: usize, context: usize, trained: Option<usize>) -> String {
    let count = if tokens == 1 { "1 token".to_owned() } else { format!("{tokens} tokens") };
    let problem = if tokens > context {
        format!("{count} do not fit the context of {context} positions: shorten the prompt")
    } else {
        format!(
            "cannot add {count}: {free} of the context's {context} positions are free: truncate or reset the sequence"
        )
    };
    match trained {
        Some(trained) if trained <= context => format!("{problem}; the model was trained for no longer context"),
        Some(trained) => {
            format!("{problem}, or load the model with a larger `context_length` (it was trained for {trained})")
        }
        None => format!("{problem}, or use a larger context"),
    }
}

impl Error {
    pub(crate) fn metadata(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Metadata { key: key.into(), what: what.into() }
    }

    pub(crate) fn tensor(tensor: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Tensor { tensor: tensor.into(), what: what.into() }
    }

    pub(crate) fn session(what: impl Into<String>) -> Self {
        Self::Session(what.into())
    }

    /// Returns the error of the request `index` of a batch.
    pub(crate) fn in_request(self, index: usize) -> Self {
        Self::Request { index, error: Box::new(self) }
    }

    /// Returns whether fewer sequences in a batch could avoid the error.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Memory { .. } | Self::OutOfMemory { .. } | Self::DeviceMemory { .. })
    }

    pub(crate) fn internal(what: impl Into<String>) -> Self {
        Self::Internal(what.into())
    }

    /// Returns the error for `bytes` bytes that the system refused to allocate.
    #[cfg(feature = "cpu")]
    pub(crate) fn out_of_memory(what: &'static str, bytes: usize) -> Self {
        Self::OutOfMemory { what, bytes: bytes as u64 }
    }

    pub(crate) fn argument(name: &'static str, what: impl Into<String>) -> Self {
        Self::Argument { name, what: what.into() }
    }
}

/// Returns the text on one line, truncated after 80 characters.
#[cfg(feature = "chat")]
pub(crate) fn excerpt(text: &str) -> String {
    const MOST: usize = 80;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}
