//! Quantizes rows of weights, to the same bytes as ggml.

mod coarse;
mod iq4;
mod k;
mod legacy;
mod scales;

use half::{bf16, f16};
use inkstone::DType;

/// Appends the blocks of a row of weights, whose length is a multiple of the format's block. The
/// importance has a number for each weight of the row, if it is known; some formats do not use it.
pub type QuantizeRow = fn(row: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>);

/// Returns the quantizer for a format, or `None` if there is none.
pub fn quantizer(dtype: DType) -> Option<QuantizeRow> {
    Some(match dtype {
        DType::F32 => |row, _, out| out.extend(row.iter().flat_map(|x| x.to_le_bytes())),
        DType::F16 => |row, _, out| out.extend(row.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes())),
        DType::BF16 => |row, _, out| out.extend(row.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes())),
        DType::Q4_0 => |row, importance, out| legacy::around_zero_row(row, importance, 4, out),
        DType::Q4_1 => |row, importance, out| legacy::minimum_row(row, importance, 4, out),
        DType::Q5_0 => |row, importance, out| legacy::around_zero_row(row, importance, 5, out),
        DType::Q5_1 => |row, importance, out| legacy::minimum_row(row, importance, 5, out),
        DType::Q8_0 => legacy::q8_0_row,
        DType::Q2_K => k::q2_k_row,
        DType::Q3_K => k::q3_k_row,
        DType::Q4_K => k::q4_k_row,
        DType::Q5_K => k::q5_k_row,
        DType::Q6_K => k::q6_k_row,
        DType::IQ4_NL => iq4::nl_row,
        DType::IQ4_XS => iq4::xs_row,
        DType::MXFP4 => coarse::mxfp4_row,
        DType::Q1_0 => coarse::q1_0_row,
        DType::Q2_0 => coarse::q2_0_row,
        DType::TQ1_0 => coarse::tq1_0_row,
        DType::TQ2_0 => coarse::tq2_0_row,
        DType::IQ1_S
        | DType::IQ1_M
        | DType::IQ2_XXS
        | DType::IQ2_XS
        | DType::IQ2_S
        | DType::IQ3_XXS
        | DType::IQ3_S
        | DType::NVFP4 => return None,
    })
}
