//! Lists the tensor formats that this crate computes on: name, GGUF number, weights and bytes per
//! block.

use std::fmt;

macro_rules! dtypes {
    ($($variant:ident = $ggml:literal, $name:literal, $weights:literal weights in $bytes:literal bytes: $doc:literal;)*) => {
        /// A format of tensor elements, with the names and numbers of the GGUF specification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "the specification has these names")]
        pub enum DType { $(#[doc = $doc] $variant),* }

        impl DType {
            /// All formats, ordered by GGUF number.
            pub const ALL: &[DType] = &[$(DType::$variant),*];

            /// Returns the format with this GGUF number (`ggml_type`).
            pub fn from_ggml(number: u32) -> Option<Self> {
                match number { $($ggml => Some(Self::$variant),)* _ => None }
            }

            /// Returns the GGUF number (`ggml_type`).
            pub fn ggml(self) -> u32 {
                match self { $(Self::$variant => $ggml),* }
            }

            /// Returns the name, for example `Q4_K`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the number of weights in a block (1 for float formats).
            pub const fn block_weights(self) -> usize {
                match self { $(Self::$variant => $weights),* }
            }

            /// Returns the size of a block in bytes.
            pub const fn block_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes),* }
            }
        }
    };
}

dtypes! {
    F32 = 0, "F32", 1 weights in 4 bytes: "32-bit float (IEEE 754).";
    F16 = 1, "F16", 1 weights in 2 bytes: "16-bit float (IEEE 754).";
    Q4_0 = 2, "Q4_0", 32 weights in 18 bytes: "4-bit codes, a scale for 32 weights.";
    Q4_1 = 3, "Q4_1", 32 weights in 20 bytes: "4-bit codes, a scale and a minimum for 32 weights.";
    Q5_0 = 6, "Q5_0", 32 weights in 22 bytes: "5-bit codes, a scale for 32 weights.";
    Q5_1 = 7, "Q5_1", 32 weights in 24 bytes: "5-bit codes, a scale and a minimum for 32 weights.";
    Q8_0 = 8, "Q8_0", 32 weights in 34 bytes: "8-bit codes, a scale for 32 weights.";
    Q2_K = 10, "Q2_K", 256 weights in 84 bytes: "2-bit codes, a 4-bit scale and minimum for 16 weights.";
    Q3_K = 11, "Q3_K", 256 weights in 110 bytes: "3-bit codes, a 6-bit scale for 16 weights.";
    Q4_K = 12, "Q4_K", 256 weights in 144 bytes: "4-bit codes, a 6-bit scale and minimum for 32 weights.";
    Q5_K = 13, "Q5_K", 256 weights in 176 bytes: "5-bit codes, a 6-bit scale and minimum for 32 weights.";
    Q6_K = 14, "Q6_K", 256 weights in 210 bytes: "6-bit codes, an 8-bit scale for 16 weights.";
    IQ2_XXS = 16, "IQ2_XXS", 256 weights in 66 bytes: "Points of a grid for 8 weights, a 4-bit scale for 32 weights.";
    IQ2_XS = 17, "IQ2_XS", 256 weights in 74 bytes: "Points of a grid for 8 weights, a 4-bit scale for 16 weights.";
    IQ3_XXS = 18, "IQ3_XXS", 256 weights in 98 bytes: "Points of a grid for 4 weights, a 4-bit scale for 32 weights.";
    IQ1_S = 19, "IQ1_S", 256 weights in 50 bytes: "Points of a grid for 8 weights, a 3-bit scale for 32 weights.";
    IQ4_NL = 20, "IQ4_NL", 32 weights in 18 bytes: "4-bit indices into a non-linear table, a scale for 32 weights.";
    IQ3_S = 21, "IQ3_S", 256 weights in 110 bytes: "Points of a grid for 4 weights, a 4-bit scale for 32 weights.";
    IQ2_S = 22, "IQ2_S", 256 weights in 82 bytes: "Points of a grid for 8 weights, a 4-bit scale for 16 weights.";
    IQ4_XS = 23, "IQ4_XS", 256 weights in 136 bytes: "4-bit indices as in `IQ4_NL`, a 6-bit scale for 32 weights.";
    IQ1_M = 29, "IQ1_M", 256 weights in 56 bytes: "Points of a grid for 8 weights, a 3-bit scale for 16 weights.";
    BF16 = 30, "BF16", 1 weights in 2 bytes: "16-bit brain float: the upper half of an f32.";
    TQ1_0 = 34, "TQ1_0", 256 weights in 54 bytes: "Ternary digits, five in a byte, a scale for 256 weights.";
    TQ2_0 = 35, "TQ2_0", 256 weights in 66 bytes: "Ternary digits of two bits, a scale for 256 weights.";
    MXFP4 = 39, "MXFP4", 32 weights in 17 bytes: "4-bit floats (E2M1), an 8-bit exponent for 32 weights (OCP).";
    NVFP4 = 40, "NVFP4", 64 weights in 36 bytes: "4-bit floats (E2M1), an 8-bit float (E4M3) for 16 weights.";
    Q1_0 = 41, "Q1_0", 128 weights in 18 bytes: "Signs, a scale for 128 weights.";
    Q2_0 = 42, "Q2_0", 64 weights in 18 bytes: "2-bit codes, a scale for 64 weights.";
}

impl DType {
    /// Returns the size in bytes of a row of `columns` weights, or `None` if `columns` is not a
    /// multiple of [`block_weights`](Self::block_weights) or the size overflows.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        if !columns.is_multiple_of(self.block_weights()) {
            return None;
        }
        (columns / self.block_weights()).checked_mul(self.block_bytes())
    }

    /// Returns whether elements are floats instead of codes in blocks.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
