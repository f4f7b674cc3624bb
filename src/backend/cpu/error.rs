//! Constructs the errors of the CPU backend that neither an argument nor a file causes.

use crate::Error;

/// Returns the error for `bytes` bytes that the system refused to allocate.
pub(super) fn out_of_memory(what: &'static str, bytes: usize) -> Error {
    Error::Memory { what, needed: bytes as u64, limit: 0 }
}

/// Returns the error for a broken invariant: a fault of this crate.
pub(super) fn internal(message: impl Into<String>) -> Error {
    Error::Graph(message.into())
}

/// Returns the error for a panic on a thread of the pool.
pub(super) fn kernel_panicked() -> Error {
    Error::Unsupported("a kernel panicked; this is a bug in inkstone".into())
}
