//! Decodes the blocks of each tensor format.
//!
//! Each format is one file and one row of the table `FORMATS`. The file defines the layout of a
//! block, a reference decoder in plain loops, with which all kernels are compared, the tile decoder
//! for the CPU, and the planes for GPUs.
#![cfg_attr(
    not(all(feature = "cpu", any(feature = "wgpu", feature = "metal"))),
    allow(dead_code, unused_imports, reason = "the CPU reads tiles, GPUs read planes")
)]

mod bits;
mod float;
mod grid;
mod grids;
mod heads;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
mod planes;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod tile;
mod tq1_0;
mod tq2_0;

use crate::{DType, Error, Result};

pub(crate) use planes::{Planes, UNIT};
pub(crate) use tile::{Lanes, ROWS, Tile, TileHead, TileVisitor};

/// A format's layout and decoders.
#[derive(Debug)]
pub struct Format {
    /// The format, which defines the number of weights and bytes of a block.
    pub dtype: DType,
    /// Size of each field of a block in bytes, in file order: 1, 2, or a multiple of 4. The sum is
    /// [`DType::block_bytes`].
    pub fields: &'static [usize],
    /// Decodes one block of exactly `block_bytes` bytes into exactly `block_weights` f32.
    pub(crate) dequantize: fn(block: &[u8], out: &mut [f32]),
    /// Layout on GPUs.
    pub(crate) planes: Planes,
}

#[rustfmt::skip]
static FORMATS: [Format; DType::ALL.len()] = [
    Format { dtype: DType::F32, fields: &float::F32_FIELDS, dequantize: float::dequantize_f32, planes: float::F32_PLANES },
    Format { dtype: DType::F16, fields: &float::F16_FIELDS, dequantize: float::dequantize_f16, planes: float::F16_PLANES },
    Format { dtype: DType::Q4_0, fields: &q4_0::FIELDS, dequantize: q4_0::dequantize, planes: q4_0::PLANES },
    Format { dtype: DType::Q4_1, fields: &q4_1::FIELDS, dequantize: q4_1::dequantize, planes: q4_1::PLANES },
    Format { dtype: DType::Q5_0, fields: &q5_0::FIELDS, dequantize: q5_0::dequantize, planes: q5_0::PLANES },
    Format { dtype: DType::Q5_1, fields: &q5_1::FIELDS, dequantize: q5_1::dequantize, planes: q5_1::PLANES },
    Format { dtype: DType::Q8_0, fields: &q8_0::FIELDS, dequantize: q8_0::dequantize, planes: q8_0::PLANES },
    Format { dtype: DType::Q2_K, fields: &q2_k::FIELDS, dequantize: q2_k::dequantize, planes: q2_k::PLANES },
    Format { dtype: DType::Q3_K, fields: &q3_k::FIELDS, dequantize: q3_k::dequantize, planes: q3_k::PLANES },
    Format { dtype: DType::Q4_K, fields: &q4_k::FIELDS, dequantize: q4_k::dequantize, planes: q4_k::PLANES },
    Format { dtype: DType::Q5_K, fields: &q5_k::FIELDS, dequantize: q5_k::dequantize, planes: q5_k::PLANES },
    Format { dtype: DType::Q6_K, fields: &q6_k::FIELDS, dequantize: q6_k::dequantize, planes: q6_k::PLANES },
    Format { dtype: DType::IQ2_XXS, fields: &iq2_xxs::FIELDS, dequantize: iq2_xxs::dequantize, planes: iq2_xxs::PLANES },
    Format { dtype: DType::IQ2_XS, fields: &iq2_xs::FIELDS, dequantize: iq2_xs::dequantize, planes: iq2_xs::PLANES },
    Format { dtype: DType::IQ3_XXS, fields: &iq3_xxs::FIELDS, dequantize: iq3_xxs::dequantize, planes: iq3_xxs::PLANES },
    Format { dtype: DType::IQ1_S, fields: &iq1_s::FIELDS, dequantize: iq1_s::dequantize, planes: iq1_s::PLANES },
    Format { dtype: DType::IQ4_NL, fields: &iq4_nl::FIELDS, dequantize: iq4_nl::dequantize, planes: iq4_nl::PLANES },
    Format { dtype: DType::IQ3_S, fields: &iq3_s::FIELDS, dequantize: iq3_s::dequantize, planes: iq3_s::PLANES },
    Format { dtype: DType::IQ2_S, fields: &iq2_s::FIELDS, dequantize: iq2_s::dequantize, planes: iq2_s::PLANES },
    Format { dtype: DType::IQ4_XS, fields: &iq4_xs::FIELDS, dequantize: iq4_xs::dequantize, planes: iq4_xs::PLANES },
    Format { dtype: DType::IQ1_M, fields: &iq1_m::FIELDS, dequantize: iq1_m::dequantize, planes: iq1_m::PLANES },
    Format { dtype: DType::BF16, fields: &float::BF16_FIELDS, dequantize: float::dequantize_bf16, planes: float::BF16_PLANES },
    Format { dtype: DType::TQ1_0, fields: &tq1_0::FIELDS, dequantize: tq1_0::dequantize, planes: tq1_0::PLANES },
    Format { dtype: DType::TQ2_0, fields: &tq2_0::FIELDS, dequantize: tq2_0::dequantize, planes: tq2_0::PLANES },
    Format { dtype: DType::MXFP4, fields: &mxfp4::FIELDS, dequantize: mxfp4::dequantize, planes: mxfp4::PLANES },
    Format { dtype: DType::NVFP4, fields: &nvfp4::FIELDS, dequantize: nvfp4::dequantize, planes: nvfp4::PLANES },
    Format { dtype: DType::Q1_0, fields: &q1_0::FIELDS, dequantize: q1_0::dequantize, planes: q1_0::PLANES },
    Format { dtype: DType::Q2_0, fields: &q2_0::FIELDS, dequantize: q2_0::dequantize, planes: q2_0::PLANES },
];

// `format` indexes the table with the enum, so the rows must be in the order of its variants.
const _: () = {
    let mut row = 0;
    while row < FORMATS.len() {
        assert!(FORMATS[row].dtype as usize == row);
        row += 1;
    }
};

/// Returns the layout and decoders of `dtype`.
pub fn format(dtype: DType) -> &'static Format {
    &FORMATS[dtype as usize]
}

const fn sum(fields: &[usize]) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < fields.len() {
        sum += fields[i];
        i += 1;
    }
    sum
}

macro_rules! tiles {
    ($($dtype:ident: $tile:ty,)*) => {
        /// Runs an operation for the tile decoder of `dtype`. Returns `None` for float formats,
        /// which have no tiles.
        ///
        /// # Safety
        /// As the visitor's [`TileVisitor::visit`].
        #[inline(always)]
        pub(crate) unsafe fn visit_tile<V: TileVisitor>(dtype: DType, visitor: V) -> Option<V::Output> {
            match dtype {
                DType::F32 | DType::F16 | DType::BF16 => None,
                // SAFETY: by the caller.
                $(DType::$dtype => Some(unsafe { visitor.visit::<$tile>() }),)*
            }
        }

        // The constants of a tile decoder must match the format.
        const _: () = {
            $(assert!(<$tile>::COLUMNS == DType::$dtype.block_weights());)*
            $(assert!(<$tile>::BYTES == DType::$dtype.block_bytes());)*
            $(assert!(sum(<$tile>::FIELDS) == DType::$dtype.block_bytes());)*
        };
    };
}

tiles! {
    Q4_0: q4_0::Q40,
    Q4_1: q4_1::Q41,
    Q5_0: q5_0::Q50,
    Q5_1: q5_1::Q51,
    Q8_0: q8_0::Q80,
    Q2_K: q2_k::Q2K,
    Q3_K: q3_k::Q3K,
    Q4_K: q4_k::Q4K,
    Q5_K: q5_k::Q5K,
    Q6_K: q6_k::Q6K,
    IQ2_XXS: iq2_xxs::Iq2Xxs,
    IQ2_XS: iq2_xs::Iq2Xs,
    IQ3_XXS: iq3_xxs::Iq3Xxs,
    IQ1_S: iq1_s::Iq1S,
    IQ4_NL: iq4_nl::Iq4Nl,
    IQ3_S: iq3_s::Iq3S,
    IQ2_S: iq2_s::Iq2S,
    IQ4_XS: iq4_xs::Iq4Xs,
    IQ1_M: iq1_m::Iq1M,
    TQ1_0: tq1_0::Tq10,
    TQ2_0: tq2_0::Tq20,
    MXFP4: mxfp4::Mxfp4,
    NVFP4: nvfp4::Nvfp4,
    Q1_0: q1_0::Q10,
    Q2_0: q2_0::Q20,
}

/// Decodes a row of `bytes` in the format `dtype` to f32.
///
/// `out` has exactly the weights of the blocks in `bytes`. For finite scales, the values are
/// identical to the output of gguf-py's `gguf.dequantize`.
///
/// # Errors
/// [`Error::Argument`] if the length of `out` is not a multiple of the block size, or `bytes` has
/// another length than the blocks of `out.len()` weights.
///
/// ```
/// use inkstone::{DType, internals::quant};
///
/// let mut out = [0.0; 2];
/// quant::dequantize_row(DType::F16, &[0x00, 0x3c, 0x00, 0xc0], &mut out)?;
/// assert_eq!(out, [1.0, -2.0]);
/// # Ok::<(), inkstone::Error>(())
/// ```
pub fn dequantize_row(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    let (weights, size) = (dtype.block_weights(), dtype.block_bytes());
    let Some(needed) = dtype.row_bytes(out.len()) else {
        let what = format!("has space for {} weights: pass a multiple of the {dtype} block size {weights}", out.len());
        return Err(Error::argument("out", what));
    };
    if bytes.len() != needed {
        let what =
            format!("has {} bytes, but {} {dtype} weights have {needed}: pass the whole row", bytes.len(), out.len());
        return Err(Error::argument("bytes", what));
    }
    let decode = format(dtype).dequantize;
    for (block, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(weights)) {
        decode(block, out);
    }
    Ok(())
}
