//! A weight matrix made ready for products.

use super::{float::FloatMatrix, packed::Packed};

/// A matrix `[rows, columns]`.
pub(super) enum Matrix {
    /// Blocks of codes, interleaved.
    Packed(Packed),
    /// Plain floats, where the file has them.
    Float(FloatMatrix),
}

impl Matrix {
    pub fn rows(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.rows,
            Self::Float(float) => float.rows,
        }
    }

    /// The bytes of its weights.
    pub fn bytes(&self) -> usize {
        let (dtype, columns) = match self {
            Self::Packed(packed) => (packed.dtype, packed.columns),
            Self::Float(float) => (float.dtype, float.columns),
        };
        self.rows() * dtype.row_bytes(columns).unwrap_or(0)
    }

    /// Groups of sixteen rows, the last perhaps not full.
    pub fn groups(&self) -> usize {
        self.rows().div_ceil(crate::quant::ROWS)
    }

    /// Whether it is multiplied with activations in 8 bits.
    pub fn is_quantized(&self) -> bool {
        matches!(self, Self::Packed(_))
    }
}
