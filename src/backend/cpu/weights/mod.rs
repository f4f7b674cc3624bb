//! Prepares the tensors of a file as weight matrices in the form that the kernels read.

pub(super) mod float;
pub(super) mod interleave;
pub(super) mod matrix;
pub(super) mod packed;
pub(super) mod prepare;
pub(super) mod stack;
