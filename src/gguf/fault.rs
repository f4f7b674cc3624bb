//! Describes the faults of a file whose header can be read.

use crate::Error;

/// A fault of a GGUF file, of which the header could be read all the same.
#[derive(Debug)]
pub(crate) struct Fault {
    pub kind: FaultKind,
    /// The error with which [`Gguf::open`](super::Gguf::open) refuses the file, of the first tensor
    /// if there are several.
    pub error: Error,
    /// The names of the tensors that are concerned, unless the kind is `File`.
    pub tensors: Vec<String>,
}

/// The kind of a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The file, or a shard of it, is malformed or missing.
    File,
    /// The file ends before the data of tensors does.
    MissingData,
    /// Tensors have the type with this GGUF number, which cannot even be listed.
    UnknownType(u32),
}

impl Fault {
    pub(super) fn of_file(error: Error) -> Self {
        Self { kind: FaultKind::File, error, tensors: vec![] }
    }
}
