//! Everything that can go wrong, as one type. Messages name the file, key or tensor, and say what to do.

use std::{fmt, io, path::PathBuf};

use crate::tool_call::ToolCall;

/// A specialised `Result` whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reports why a call failed.
///
/// The message is complete: it includes the operating system's words where a file cannot be read, so no variant has a
/// [`source`](std::error::Error::source) and no report shows a cause twice. `Debug` prints the message too, which is
/// how a program ends whose `main` returns [`Result`]. To act on an error, match its variant and fields.
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
    /// The file is not a sound GGUF file.
    #[error("{}: {what}", path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A metadata key is missing, has another type than it should, or holds a value that cannot be used.
    #[error("metadata key `{key}`: {what}")]
    Metadata {
        /// The key, for example `qwen3.block_count`.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// A tensor is missing, has the wrong shape, or is stored in a format that this crate does not compute on.
    #[error("tensor `{tensor}`: {what}")]
    Tensor {
        /// The tensor's name, for example `blk.0.attn_q.weight`.
        tensor: String,
        /// What is wrong with it.
        what: String,
    },
    /// The model's architecture is not one that this crate builds.
    #[error("architecture `{name}` is {}; supported: {supported}", if *known { "known but not built yet" } else { "unknown" })]
    Architecture {
        /// `general.architecture` of the file.
        name: String,
        /// Whether the name is that of a known model family.
        known: bool,
        /// The architectures that are built, comma-separated.
        supported: String,
    },
    /// A graph breaks one of its invariants; the model or the pass that made it is at fault.
    #[error("graph: {0}")]
    Graph(String),
    /// The tokenizer could not be built from the file, or text could not be encoded or decoded with it.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The chat template is missing, does not parse, or could not be rendered.
    #[error("chat template: {0}")]
    ChatTemplate(String),
    /// A schema, expression or grammar cannot be used.
    #[error("grammar: {0}")]
    Grammar(String),
    /// A generated text ended before it was a complete value of the type.
    #[error("the text of a `{form}` ended before it was complete ({stop}): {what}: `{text}`")]
    Incomplete {
        /// The name of the type, without its path.
        form: String,
        /// The [`StopReason`](crate::StopReason), such as `TokenLimit`.
        stop: String,
        /// A way to get a complete text.
        what: String,
        /// The text so far.
        text: String,
    },
    /// A generated text is complete, but cannot be read as the type.
    #[error("the text is not a `{form}`: {what}: `{text}`")]
    Form {
        /// The name of the type, without its path.
        form: String,
        /// The reason, and what to do.
        what: String,
        /// The whole text.
        text: String,
    },
    /// A model has called a tool in a way that cannot be read, or that does not fit the tools that
    /// were offered.
    #[error("the call of a tool {what}: `{text}`")]
    ToolCall {
        /// What is wrong with it.
        what: String,
        /// What the model wrote.
        text: String,
        /// The call, where it could be read.
        call: Option<Box<ToolCall>>,
    },
    /// An argument of a call cannot be used.
    #[error("{name}: {what}")]
    Argument {
        /// The argument or option.
        name: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// One of several requests cannot be served.
    #[error("request {index}: {error}")]
    Request {
        /// Index of the request, from 0.
        index: usize,
        /// The error of the request.
        error: Box<Error>,
    },
    /// The tokens to be added do not fit what is left of the context.
    #[error("{}", context_full(*tokens, *free, *context, *trained))]
    ContextFull {
        /// Number of tokens to be added.
        tokens: usize,
        /// Number of free positions.
        free: usize,
        /// Number of positions in the context, free or not.
        context: usize,
        /// The longest context that the model was trained for, where it is known.
        trained: Option<usize>,
    },
    /// More memory would be needed than was allowed or than there is.
    #[error(
        "{what} needs {needed} bytes, {limit} are allowed: use a smaller model, context or prefill chunk, or raise the limit"
    )]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// There is no such GPU, or none at all.
    #[error("{0}")]
    NoDevice(String),
    /// A GPU has failed, or its driver has refused something.
    #[error("{device}: {what}")]
    Device {
        /// The GPU's name.
        device: String,
        /// What went wrong.
        what: String,
    },
    /// Loading was cancelled by its caller.
    #[error("loading was cancelled by the callback of `on_progress`")]
    Cancelled,
    /// A GPU has no room.
    #[error(
        "{device} has no room for {what}, {needed} bytes: use a smaller model, context or prefill chunk, or the CPU"
    )]
    DeviceMemory {
        /// The GPU's name.
        device: String,
        /// What the memory is for.
        what: String,
        /// Bytes needed at once.
        needed: u64,
    },
    /// The thread of an asynchronous runner could not be started, or is no more.
    #[error("the runner's thread {0}")]
    Thread(String),
    /// The model needs a cargo feature of this crate that the program was built without.
    #[error("{what}, which needs the feature `{feature}` of inkstone: enable it in the program's Cargo.toml")]
    MissingFeature {
        /// The feature, for example `safetensors`.
        feature: &'static str,
        /// The file or directory, and the part of it that needs the feature.
        what: String,
    },
    /// The model has no such ability.
    #[error("{0}")]
    Unsupported(String),
}

/// Prints the message, for `main() -> Result<()>`, `unwrap` and `expect`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the message of [`Error::ContextFull`], which suggests only what helps.
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

    /// The error of one of several requests.
    pub(crate) fn in_request(self, index: usize) -> Self {
        Self::Request { index, error: Box::new(self) }
    }

    /// Whether fewer sequences at once may avoid it.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Memory { .. } | Self::DeviceMemory { .. } | Self::Argument { name: "memory_limit", .. })
    }

    pub(crate) fn argument(name: &'static str, what: impl Into<String>) -> Self {
        Self::Argument { name, what: what.into() }
    }
}

/// Returns a text on one line, cut after 80 characters.
#[cfg(feature = "chat")]
pub(crate) fn excerpt(text: &str) -> String {
    const MOST: usize = 80;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}
