//! Q5_K: 256 weights in 176 bytes, in groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `dmin` | scale of the minima, f16 |
//! | 12 | `scales` | 6-bit scale and minimum of each group, 0 to 63: see [`bits::scale_and_min`] |
//! | 32 | `high` | the code's bit 4: byte b holds that of weight b of each group, the first group's lowest |
//! | 128 | `low` | the code's bits 0 to 3: 32 bytes hold two groups, the first in the low halves |
//!
//! weight i = d * scale(i / 32) * code(i) - dmin * min(i / 32), code(i) = low(i) + 16 * high(i)
//!
//! Source: GGUF's type 13, ggml's `block_q5_K`.

use super::bits;

pub(super) const FIELDS: [usize; 5] = [2, 2, 12, 32, 128];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, dmin, scales, high, low] = bits::split(block, FIELDS);
    let (d, dmin) = (bits::f16(d), bits::f16(dmin));
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = bits::scale_and_min(scales, i / 32);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let code = bits::code(low, 4, 32, i) | (bits::code(high, 1, 32, i) << 4);
        *out = scale * f32::from(code) - min;
    }
}
