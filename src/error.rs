//! Everything that can go wrong, as one type. Messages name the file, key or tensor, and say what to do.

use std::{io, path::PathBuf};

/// A specialised `Result` whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened, mapped or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
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
    /// A model has called a tool in a way that cannot be read, or that was not asked for.
    #[error("the call of a tool {what}: `{text}`")]
    ToolCall {
        /// What is wrong with it.
        what: String,
        /// What the model wrote.
        text: String,
    },
    /// An argument of a call cannot be used.
    #[error("{name}: {what}")]
    Argument {
        /// The argument or option.
        name: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The prompt and what is in the cache do not fit the context.
    #[error(
        "the prompt has {tokens} tokens, but only {free} of the context's {context} are free: \
         shorten it, call `reset`, or build the runner with a larger `context_length`"
    )]
    ContextFull {
        /// Tokens that were to be added.
        tokens: usize,
        /// Positions still free.
        free: usize,
        /// The context's length.
        context: usize,
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
    /// The model has no such ability.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    pub(crate) fn metadata(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Metadata { key: key.into(), what: what.into() }
    }

    pub(crate) fn tensor(tensor: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Tensor { tensor: tensor.into(), what: what.into() }
    }

    pub(crate) fn argument(name: &'static str, what: impl Into<String>) -> Self {
        Self::Argument { name, what: what.into() }
    }
}
