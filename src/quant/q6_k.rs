//! Q6_K: 256 weights in 210 bytes, in groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 128 | `low` | the code's bits 0 to 3: 64 bytes hold 128 weights, the first 64 in the low halves |
//! | 64 | `high` | the code's bits 4 and 5: 32 bytes hold 128 weights, byte b those of b, b + 32, b + 64 and b + 96 |
//! | 16 | `scales` | one signed byte a group |
//! | 2 | `d` | scale of the scales, f16 |
//!
//! weight i = d * scale(i / 16) * (code(i) - 32), code(i) = low(i) + 16 * high(i)
//!
//! Source: GGUF's type 14, ggml's `block_q6_K`.

use super::bits;

pub(super) const FIELDS: [usize; 4] = [128, 64, 16, 2];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [low, high, scales, d] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let code = bits::code(low, 4, 64, i) | (bits::code(high, 2, 32, i) << 4);
        *out = d * f32::from(scales[i / 16] as i8) * f32::from(code as i8 - 32);
    }
}
