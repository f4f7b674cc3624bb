//! Q3_K: 256 weights in 110 bytes, in groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 32 | `high` | the code's bit 2: byte b holds that of weights b, b + 32, ... b + 224, lowest bit first |
//! | 64 | `low` | the code's bits 0 and 1: 32 bytes hold 128 weights, byte b those of b, b + 32, b + 64 and b + 96 |
//! | 12 | `scales` | 6 bits a group, 0 to 63: see below |
//! | 2 | `d` | scale of the scales, f16 |
//!
//! weight i = d * (scale(i / 16) - 32) * (code(i) - 4), code(i) = low(i) + 4 * high(i)
//!
//! Byte b of the first 8 of `scales` holds the low four bits of groups b and b + 8, byte b of the last 4 the upper two
//! bits of groups b, b + 4, b + 8 and b + 12.
//!
//! Source: GGUF's type 11, ggml's `block_q3_K`.

use super::bits;

pub(super) const FIELDS: [usize; 4] = [32, 64, 12, 2];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [high, low, scales, d] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let code = bits::code(low, 2, 32, i) | (bits::code(high, 1, 32, i) << 2);
        *out = d * f32::from(scale(scales, i / 16) as i8 - 32) * f32::from(code as i8 - 4);
    }
}

fn scale(scales: &[u8], group: usize) -> u8 {
    let (low, high) = scales.split_at(8);
    bits::code(low, 4, 8, group) | (bits::code(high, 2, 4, group) << 4)
}
