//! Q4_K: 256 weights in 144 bytes, in groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `dmin` | scale of the minima, f16 |
//! | 12 | `scales` | 6-bit scale and minimum of each group, 0 to 63: see [`bits::scale_and_min`] |
//! | 128 | `codes` | 4 bits a weight, 0 to 15: 32 bytes hold two groups, the first in the low halves |
//!
//! weight i = d * scale(i / 32) * code(i) - dmin * min(i / 32)
//!
//! Source: GGUF's type 12, ggml's `block_q4_K`.

use super::bits;

pub(super) const FIELDS: [usize; 4] = [2, 2, 12, 128];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, dmin, scales, codes] = bits::split(block, FIELDS);
    let (d, dmin) = (bits::f16(d), bits::f16(dmin));
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = bits::scale_and_min(scales, i / 32);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        *out = scale * f32::from(bits::code(codes, 4, 32, i)) - min;
    }
}
