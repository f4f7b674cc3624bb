//! Matrices of floats, which products read where the file has them.

use super::stack::Stack;
use crate::{DType, Result, weights::Weight};

/// Stacked matrices of f32, f16 or bf16.
pub(crate) struct FloatMatrix {
    pub dtype: DType,
    pub stack: Stack,
    /// The first element of each matrix. The executable owns the weights for as long as steps read
    /// them.
    data: Box<[*const u8]>,
}

impl FloatMatrix {
    /// Locates the matrices of a weight.
    ///
    /// # Errors
    /// As [`Weight::bytes_in_place`].
    pub fn new(weight: &Weight<'_>, stack: Stack) -> Result<Self> {
        let bytes = weight.byte_len() / stack.count.max(1);
        let data = (0..stack.count).map(|n| Ok(weight.bytes_in_place(n * bytes..(n + 1) * bytes)?.as_ptr()));
        Ok(Self { dtype: weight.dtype, stack, data: data.collect::<Result<_>>()? })
    }

    /// Returns the first element of the matrix that a group of rows belongs to.
    pub fn matrix_of(&self, group: usize) -> *const u8 {
        self.data[group / self.stack.groups_per_matrix()]
    }
}

// SAFETY: the elements are never written.
unsafe impl Send for FloatMatrix {}
// SAFETY: as above.
unsafe impl Sync for FloatMatrix {}
