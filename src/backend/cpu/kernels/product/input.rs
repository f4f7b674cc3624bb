//! Describes the activations that a matrix is multiplied with.

use crate::backend::cpu::kernels::{quantize::Q8Activations, rows::StridedRows};

/// Activations `[tokens, columns]`, in the form that the matrix needs.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    /// The rows in int8, read for quantized matrices.
    pub q8: Q8Activations,
    /// The rows in f32, read for float matrices.
    pub f32: StridedRows,
    /// Number of rows.
    pub tokens: usize,
}
