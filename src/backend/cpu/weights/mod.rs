//! Weight matrices as the kernels read them, and their preparation from a file's tensors.

pub(super) mod float;
pub(super) mod interleave;
pub(super) mod matrix;
pub(super) mod packed;
pub(super) mod prepare;
pub(super) mod stack;
