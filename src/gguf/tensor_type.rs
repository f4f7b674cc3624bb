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

/// Types that were removed from GGUF: number and name. GGUF does not reuse their numbers.
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

/// The type of bitnet.cpp that has the number of `IQ4_NL_4_4`.
const I2_S: u32 = 36;

/// Types of ik_llama.cpp, which GGUF does not have: number and name.
const FOREIGN: [(u32, &str); 18] = [
    (133, "Q6_0"),
    (134, "IQ1_BN"),
    (135, "IQ2_BN"),
    (137, "IQ2_K"),
    (138, "IQ3_K"),
    (139, "IQ4_K"),
    (140, "IQ5_K"),
    (141, "IQ6_K"),
    (144, "IQ4_KS"),
    (145, "IQ2_KS"),
    (146, "IQ4_KSS"),
    (152, "IQ5_KS"),
    (153, "IQ2_KT"),
    (154, "IQ3_KT"),
    (155, "IQ4_KT"),
    (156, "IQ3_KS"),
    (157, "IQ2_KL"),
    (158, "IQ1_KT"),
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
        Err(match (Self::unknown(number).name, number) {
            ("", _) => format!("has the unknown tensor type {number}: {DAMAGED_OR_NEWER}"),
            (name, I2_S) => format!(
                "is stored as {name}, which was removed from GGUF, or as I2_S, which only bitnet.cpp reads: quantize \
                 the model again as Q4_0, IQ4_NL or TQ2_0"
            ),
            (name, _) if REMOVED.iter().any(|removed| removed.0 == number) => {
                format!("is stored as {name}, which was removed from GGUF: quantize the model again as Q4_0 or IQ4_NL")
            }
            (name, _) => format!(
                "is stored as {name}, which only ik_llama.cpp reads: quantize the original model to a type of llama.cpp"
            ),
        })
    }

    /// Returns a stand-in for a type that cannot be listed, since the size of its blocks is
    /// unknown. Its name is empty if that is unknown, too.
    pub(super) fn unknown(number: u32) -> Self {
        let name = REMOVED.iter().chain(&FOREIGN).find(|known| known.0 == number).map_or("", |known| known.1);
        Self { number, name, block_weights: 1, block_bytes: 1 }
    }

    /// Returns the name, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns the GGUF number (`ggml_type`).
    pub fn ggml(self) -> u32 {
        self.number
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
