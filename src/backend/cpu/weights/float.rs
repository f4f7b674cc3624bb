//! Matrices of plain floats, where the file has them.

use super::stack::Stack;
use crate::{DType, Result, weights::Weight};

/// Matrices of plain floats.
pub(crate) struct FloatMatrix {
    pub dtype: DType,
    pub stack: Stack,
    /// The first element of each; the executable keeps the weights alive for as long as these are read.
    data: Box<[*const u8]>,
}

impl FloatMatrix {
    /// The matrices of a weight, where each lies.
    pub fn new(weight: &Weight<'_>, stack: Stack) -> Result<Self> {
        let each = weight.byte_len() / stack.count.max(1);
        let data = (0..stack.count).map(|n| Ok(weight.bytes_in_place(n * each..(n + 1) * each)?.as_ptr()));
        Ok(Self { dtype: weight.dtype, stack, data: data.collect::<Result<_>>()? })
    }

    /// The first element of the matrix in which a group lies.
    pub fn data_of(&self, group: usize) -> *const u8 {
        self.data[group / self.stack.groups_each()]
    }
}

// SAFETY: the elements are never written.
unsafe impl Send for FloatMatrix {}
// SAFETY: as above.
unsafe impl Sync for FloatMatrix {}
