//! IQ4_XS: 256 weights in 136 bytes, in groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `scales_high` | the scales' bits 4 and 5, two bits a group, as a little-endian integer |
//! | 4 | `scales_low` | the scales' bits 0 to 3, four bits a group, as a little-endian integer |
//! | 128 | `codes` | 4 bits a weight: 16 bytes hold a group, its first 16 weights in the low halves |
//!
//! weight i = d * (scale(i / 32) - 32) * VALUES[code(i)], with the values of `IQ4_NL`
//!
//! Source: GGUF's type 23, ggml's `block_iq4_xs`.

use super::{bits, iq4_nl::VALUES};

pub(super) const FIELDS: [usize; 4] = [2, 2, 4, 128];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, scales_high, scales_low, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = bits::code(scales_low, 4, 1, i / 32) | (bits::code(scales_high, 2, 1, i / 32) << 4);
        let value = VALUES[usize::from(bits::code(codes, 4, 16, i))];
        *out = d * f32::from(scale as i8 - 32) * f32::from(value);
    }
}
