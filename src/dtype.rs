//! The element formats of tensors: how many weights a block holds and how many bytes it takes.

use std::fmt;

macro_rules! dtypes {
    ($($variant:ident = $ggml:literal, $name:literal, $weights:literal weights in $bytes:literal bytes: $doc:literal;)*) => {
        /// The format of a tensor's elements, with the names and numbers of the GGUF specification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "the names are the specification's")]
        pub enum DType { $(#[doc = $doc] $variant),* }

        impl DType {
            /// Every format, in the order of their GGUF numbers.
            pub const ALL: &[DType] = &[$(DType::$variant),*];

            /// The format with this number in a GGUF file (`ggml_type`).
            pub fn from_ggml(number: u32) -> Option<Self> {
                match number { $($ggml => Some(Self::$variant),)* _ => None }
            }

            /// Its number in a GGUF file (`ggml_type`).
            pub fn ggml(self) -> u32 {
                match self { $(Self::$variant => $ggml),* }
            }

            /// Its usual name, for example `Q4_K`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// How many weights a block holds (1 for the plain formats).
            pub const fn block_weights(self) -> usize {
                match self { $(Self::$variant => $weights),* }
            }

            /// How many bytes a block takes.
            pub const fn block_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes),* }
            }
        }
    };
}

dtypes! {
    F32 = 0, "F32", 1 weights in 4 bytes: "IEEE 754 single precision.";
    F16 = 1, "F16", 1 weights in 2 bytes: "IEEE 754 half precision.";
    Q4_0 = 2, "Q4_0", 32 weights in 18 bytes: "4-bit codes with a scale for 32.";
    Q4_1 = 3, "Q4_1", 32 weights in 20 bytes: "4-bit codes with a scale and a minimum for 32.";
    Q5_0 = 6, "Q5_0", 32 weights in 22 bytes: "5-bit codes with a scale for 32.";
    Q5_1 = 7, "Q5_1", 32 weights in 24 bytes: "5-bit codes with a scale and a minimum for 32.";
    Q8_0 = 8, "Q8_0", 32 weights in 34 bytes: "8-bit codes with a scale for 32.";
    Q2_K = 10, "Q2_K", 256 weights in 84 bytes: "2-bit codes, 4-bit scales and minima for 16.";
    Q3_K = 11, "Q3_K", 256 weights in 110 bytes: "3-bit codes, 6-bit scales for 16.";
    Q4_K = 12, "Q4_K", 256 weights in 144 bytes: "4-bit codes, 6-bit scales and minima for 32.";
    Q5_K = 13, "Q5_K", 256 weights in 176 bytes: "5-bit codes, 6-bit scales and minima for 32.";
    Q6_K = 14, "Q6_K", 256 weights in 210 bytes: "6-bit codes, 8-bit scales for 16.";
    IQ4_NL = 20, "IQ4_NL", 32 weights in 18 bytes: "4-bit indices into a table of uneven steps, with a scale for 32.";
    IQ4_XS = 23, "IQ4_XS", 256 weights in 136 bytes: "As `IQ4_NL`, with 6-bit scales for 32.";
    BF16 = 30, "BF16", 1 weights in 2 bytes: "The upper half of a single-precision float.";
    MXFP4 = 39, "MXFP4", 32 weights in 17 bytes: "4-bit floats (E2M1) with a power-of-two scale for 32 (OCP microscaling).";
}

impl DType {
    /// The bytes of one row of `columns` weights; `None` where the row is no whole number of blocks or overflows.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        if !columns.is_multiple_of(self.block_weights()) {
            return None;
        }
        (columns / self.block_weights()).checked_mul(self.block_bytes())
    }

    /// Whether each element is a float of its own rather than a code in a block.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
