//! Lists the storage types of tensors, including those that this crate only lists.

use std::fmt;

use super::read::{DAMAGED_OR_NEWER, Parsed};
use crate::DType;

/// The storage type of a tensor's elements: a format that this crate computes on ([`DType`]), or
/// one that it can only list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    number: u32,
    name: &'static str,
    block_weights: usize,
    block_bytes: usize,
}

/// Types that are not in [`DType`]: GGUF number, name, weights per block and bytes per block, as in
/// ggml's `ggml-common.h`.
const LISTED: [(u32, &str, usize, usize); 7] = [
    (9, "Q8_1", 32, 36),
    (15, "Q8_K", 256, 292),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
];

/// Types that were removed from GGUF: number and name. Their numbers are not reused.
const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl TensorType {
    /// Returns the type with this GGUF number (`ggml_type`), or an error message.
    pub(super) fn from_number(number: u32) -> Parsed<Self> {
        if let Some(dtype) = DType::from_ggml(number) {
            return Ok(dtype.into());
        }
        if let Some(&(_, name, block_weights, block_bytes)) = LISTED.iter().find(|listed| listed.0 == number) {
            return Ok(Self { number, name, block_weights, block_bytes });
        }
        Err(match REMOVED.iter().find(|removed| removed.0 == number) {
            Some((_, name)) => {
                format!("is stored as {name}, which was removed from GGUF: quantize the model again as Q4_0 or IQ4_NL")
            }
            None => format!("has the unknown tensor type {number}: {DAMAGED_OR_NEWER}"),
        })
    }

    /// Returns the name, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns the format, or `None` if this crate does not compute on it.
    pub fn dtype(self) -> Option<DType> {
        DType::from_ggml(self.number)
    }

    /// Returns the number of weights in a block (1 for unquantized types).
    pub fn block_weights(self) -> usize {
        self.block_weights
    }

    /// Returns the size of a block in bytes.
    pub fn block_bytes(self) -> usize {
        self.block_bytes
    }
}

impl From<DType> for TensorType {
    fn from(dtype: DType) -> Self {
        let (block_weights, block_bytes) = (dtype.block_weights(), dtype.block_bytes());
        Self { number: dtype.ggml(), name: dtype.name(), block_weights, block_bytes }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
