//! Q4_0: 32 weights in 18 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 16 | `codes` | 4 bits a weight, 0 to 15: weights 0 to 15 in the low halves, 16 to 31 in the high ones |
//!
//! weight i = d * (code(i) - 8)
//!
//! Source: GGUF's type 2, ggml's `block_q4_0`.

use super::bits;

pub(super) const FIELDS: [usize; 2] = [2, 16];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(bits::code(codes, 4, 16, i) as i8 - 8);
    }
}
