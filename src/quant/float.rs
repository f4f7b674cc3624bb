//! F32, F16 and BF16: little-endian floats, in blocks of one weight.
//!
//! BF16 is the upper half of an F32. Source: GGUF types 0, 1 and 30.

use super::{
    bits,
    planes::{self, Planes},
};

pub(super) const F32_FIELDS: [usize; 1] = [4];
pub(super) const F16_FIELDS: [usize; 1] = [2];
pub(super) const BF16_FIELDS: [usize; 1] = [2];

pub(super) fn dequantize_f32(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

pub(super) fn dequantize_f16(block: &[u8], out: &mut [f32]) {
    out[0] = bits::f16(block);
}

pub(super) fn dequantize_bf16(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([0, 0, block[0], block[1]]);
}

pub(super) const F32_PLANES: Planes = planes_of(&[128], include_str!("../../kernels/format/f32.wgsl"));
pub(super) const F16_PLANES: Planes = planes_of(&[64], include_str!("../../kernels/format/f16.wgsl"));
pub(super) const BF16_PLANES: Planes = planes_of(&[64], include_str!("../../kernels/format/bf16.wgsl"));

const fn planes_of(bytes: &'static [usize], decoder: &'static str) -> Planes {
    Planes { units: 1, bytes, split: |units, planes| planes::copy([units], planes), decoder, scales: 0, table: &[] }
}
