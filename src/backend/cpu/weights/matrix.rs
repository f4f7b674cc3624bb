//! Represents weight matrices that are ready for products.

use super::{float::FloatMatrix, packed::PackedMatrix, stack::Stack};

/// One matrix or several stacked ones.
pub(crate) enum Matrix {
    /// Quantized blocks, interleaved.
    Packed(PackedMatrix),
    /// Floats, read where the file has them.
    Float(FloatMatrix),
}

impl Matrix {
    pub fn stack(&self) -> Stack {
        match self {
            Self::Packed(packed) => packed.stack,
            Self::Float(float) => float.stack,
        }
    }

    /// Returns the bytes of each stacked matrix.
    pub fn bytes_per_matrix(&self) -> usize {
        let dtype = match self {
            Self::Packed(packed) => packed.dtype,
            Self::Float(float) => float.dtype,
        };
        let Stack { rows, columns, .. } = self.stack();
        rows * dtype.row_bytes(columns).unwrap_or(0)
    }

    /// Returns the bytes of all stacked matrices.
    pub fn bytes(&self) -> usize {
        self.stack().count * self.bytes_per_matrix()
    }

    /// Returns the number of groups of sixteen rows.
    pub fn groups(&self) -> usize {
        self.stack().groups()
    }

    /// Returns whether products read the int8 form of the activations.
    pub fn is_quantized(&self) -> bool {
        matches!(self, Self::Packed(_))
    }
}
