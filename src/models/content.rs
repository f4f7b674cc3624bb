//! Tells models from the other things that GGUF files hold.

use std::fmt;

use super::{mtp, vision::projector_name};
use crate::{Error, Result, gguf::Gguf};

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileContent {
    /// A text model.
    Model {
        /// `general.architecture`, for example `qwen3`.
        architecture: String,
    },
    /// An encoder of images, for [`RunnerBuilder::vision`](crate::RunnerBuilder::vision), or of
    /// sound, which is not supported.
    VisionEncoder {
        /// `clip.projector_type`, for example `qwen3vl_merger`; empty if the file does not say.
        projector: String,
    },
    /// Only the head for multi-token prediction of a model, for
    /// [`RunnerBuilder::draft`](crate::RunnerBuilder::draft).
    MtpHead {
        /// `general.architecture` of the model.
        architecture: String,
    },
    /// A LoRA adapter.
    Adapter,
    /// A control vector.
    ControlVector,
    /// An importance matrix, with which models are quantized.
    ImportanceMatrix,
    /// A vocabulary without tensors.
    Vocabulary,
}

impl FileContent {
    /// Returns the content of a file, by its metadata and the names of its tensors.
    ///
    /// # Errors
    /// [`Error::Metadata`] if a key has another type, or if the file names no architecture.
    pub(crate) fn of(gguf: &Gguf) -> Result<Self> {
        match gguf.str("general.type")? {
            Some("adapter") => return Ok(Self::Adapter),
            Some("imatrix") => return Ok(Self::ImportanceMatrix),
            _ => {}
        }
        let architecture = gguf.architecture()?.to_owned();
        Ok(match architecture.as_str() {
            "clip" => Self::VisionEncoder { projector: projector_name(gguf)?.unwrap_or_default().into() },
            "controlvector" => Self::ControlVector,
            _ if gguf.tensors().is_empty() && gguf.get("tokenizer.ggml.model").is_some() => Self::Vocabulary,
            _ if mtp::is_only_head(gguf)? => Self::MtpHead { architecture },
            _ => Self::Model { architecture },
        })
    }

    /// Refuses content that is not a model. The family refuses a head, whose layer it knows.
    ///
    /// # Errors
    /// [`Error::InvalidFile`], which says what to do with the file.
    pub(crate) fn refuse_unless_model(&self, gguf: &Gguf) -> Result<()> {
        let use_instead = match self {
            Self::Model { .. } | Self::MtpHead { .. } => return Ok(()),
            Self::VisionEncoder { .. } => "load its text model, and pass this file to `RunnerBuilder::vision`",
            Self::Adapter => "merge it into its model with llama.cpp's `llama-export-lora`, and load the result",
            Self::ControlVector => "control vectors are not supported",
            Self::ImportanceMatrix => "it is read when a model is quantized",
            Self::Vocabulary => "load a file with the whole model",
        };
        let path = gguf.path().into();
        Err(Error::InvalidFile { path, what: format!("is {self}, not a model: {use_instead}") })
    }
}

/// Shows the content as a noun with its article.
impl fmt::Display for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model { architecture } => write!(f, "a model of the architecture `{architecture}`"),
            Self::VisionEncoder { projector } if projector.is_empty() => f.write_str("an encoder of images or sound"),
            Self::VisionEncoder { projector } => write!(f, "an encoder of images or sound (`{projector}`)"),
            Self::MtpHead { architecture } => {
                write!(f, "the head for multi-token prediction of a model of the architecture `{architecture}`")
            }
            Self::Adapter => f.write_str("a LoRA adapter"),
            Self::ControlVector => f.write_str("a control vector"),
            Self::ImportanceMatrix => f.write_str("an importance matrix"),
            Self::Vocabulary => f.write_str("a vocabulary without tensors"),
        }
    }
}
