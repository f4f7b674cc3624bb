//! A weight matrix made ready for products.

use super::{float::FloatMatrix, packed::Packed, stack::Stack};

/// One matrix or several.
pub(crate) enum Matrix {
    /// Blocks of codes, interleaved.
    Packed(Packed),
    /// Plain floats, where the file has them.
    Float(FloatMatrix),
}

impl Matrix {
    pub fn stack(&self) -> Stack {
        match self {
            Self::Packed(packed) => packed.stack,
            Self::Float(float) => float.stack,
        }
    }

    /// The bytes of the weights of one of its matrices.
    pub fn bytes_each(&self) -> usize {
        let dtype = match self {
            Self::Packed(packed) => packed.dtype,
            Self::Float(float) => float.dtype,
        };
        let Stack { rows, columns, .. } = self.stack();
        rows * dtype.row_bytes(columns).unwrap_or(0)
    }

    /// The bytes of its weights.
    pub fn bytes(&self) -> usize {
        self.stack().count * self.bytes_each()
    }

    /// Groups of sixteen rows.
    pub fn groups(&self) -> usize {
        self.stack().groups()
    }

    /// Whether it is multiplied with activations in 8 bits.
    pub fn is_quantized(&self) -> bool {
        matches!(self, Self::Packed(_))
    }
}
