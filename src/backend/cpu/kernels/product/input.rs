//! The activations that a matrix is multiplied with.

use crate::backend::cpu::kernels::quantize::Activations;

/// What the matrices are multiplied with.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    /// The rows in 8 bits; not looked at for matrices of plain floats.
    pub quantized: Activations,
    /// The rows as they are; not looked at for quantised matrices.
    pub plain: *const f32,
    /// Elements from one plain row to the next.
    pub stride: usize,
    /// Rows.
    pub tokens: usize,
}
