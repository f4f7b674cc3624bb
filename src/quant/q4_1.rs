//! Q4_1: 32 weights in 20 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 2 | `m` | minimum, f16 |
//! | 16 | `codes` | 4 bits a weight, 0 to 15: weights 0 to 15 in the low halves, 16 to 31 in the high ones |
//!
//! weight i = d * code(i) + m
//!
//! Source: GGUF's type 3, ggml's `block_q4_1`.

use super::bits;

pub(super) const FIELDS: [usize; 3] = [2, 2, 16];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, m, codes] = bits::split(block, FIELDS);
    let (d, m) = (bits::f16(d), bits::f16(m));
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(bits::code(codes, 4, 16, i)) + m;
    }
}
