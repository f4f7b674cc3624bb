//! Q8_0: 32 weights in 34 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 32 | `codes` | one signed byte a weight |
//!
//! weight i = d * code(i)
//!
//! Source: GGUF's type 8, ggml's `block_q8_0`.

use super::bits;

pub(super) const FIELDS: [usize; 2] = [2, 32];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (out, &code) in out.iter_mut().zip(codes) {
        *out = d * f32::from(code as i8);
    }
}
