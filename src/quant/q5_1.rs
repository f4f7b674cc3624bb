//! Q5_1: 32 weights in 24 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 2 | `m` | minimum, f16 |
//! | 4 | `high` | the code's bit 4, one bit a weight, as a little-endian integer |
//! | 16 | `low` | the code's bits 0 to 3: weights 0 to 15 in the low halves, 16 to 31 in the high ones |
//!
//! weight i = d * code(i) + m, code(i) = low(i) + 16 * high(i)
//!
//! Source: GGUF's type 7, ggml's `block_q5_1`.

use super::bits;

pub(super) const FIELDS: [usize; 4] = [2, 2, 4, 16];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, m, high, low] = bits::split(block, FIELDS);
    let (d, m) = (bits::f16(d), bits::f16(m));
    for (i, out) in out.iter_mut().enumerate() {
        let code = bits::code(low, 4, 16, i) | (bits::code(high, 1, 1, i) << 4);
        *out = d * f32::from(code) + m;
    }
}
