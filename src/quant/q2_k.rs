//! Q2_K: 256 weights in 84 bytes, in groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 16 | `scales` | one byte a group: its scale in the low half, its minimum in the high one, 0 to 15 each |
//! | 64 | `codes` | 2 bits a weight, 0 to 3: 32 bytes hold 128 weights, byte b those of b, b + 32, b + 64 and b + 96 |
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `dmin` | scale of the minima, f16 |
//!
//! weight i = d * scale(i / 16) * code(i) - dmin * min(i / 16)
//!
//! Source: GGUF's type 10, ggml's `block_q2_K`.

use super::bits;

pub(super) const FIELDS: [usize; 4] = [16, 64, 2, 2];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [scales, codes, d, dmin] = bits::split(block, FIELDS);
    let (d, dmin) = (bits::f16(d), bits::f16(dmin));
    for (i, out) in out.iter_mut().enumerate() {
        let group = scales[i / 16];
        let (scale, min) = (d * f32::from(group & 15), dmin * f32::from(group >> 4));
        *out = scale * f32::from(bits::code(codes, 2, 32, i)) - min;
    }
}
