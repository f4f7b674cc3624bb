//! IQ4_NL: 32 weights in 18 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 16 | `codes` | 4 bits a weight, indices of [`VALUES`]: weights 0 to 15 in the low halves, 16 to 31 in the high |
//!
//! weight i = d * VALUES[code(i)]
//!
//! Source: GGUF's type 20, ggml's `block_iq4_nl`.

use super::bits;

pub(super) const FIELDS: [usize; 2] = [2, 16];

/// What the codes stand for: steps that widen away from zero, as weights grow rarer there. `IQ4_XS` uses them too.
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(VALUES[usize::from(bits::code(codes, 4, 16, i))]);
    }
}
