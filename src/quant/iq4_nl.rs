//! IQ4_NL: 32 weights in 18 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 16 | `codes` | indices of [`VALUES`]: weights 0 to 15 in low nibbles, 16 to 31 in high |
//!
//! weight i = d * VALUES[code(i)]
//!
//! Source: GGUF type 20, ggml's `block_iq4_nl`.

use super::{
    Lanes, Tile, bits,
    heads::ScaleHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [2, 16];

/// Value of each code, also for `IQ4_XS`. The steps widen away from zero, where weights are rarer.
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(VALUES[usize::from(bits::code(codes, 4, 16, i))]);
    }
}

/// The values plus 128, as unsigned codes of a tile.
pub(super) static CODES: [u8; 16] = bits::raise(VALUES, 128);

pub(super) const PLANES: Planes = Planes {
    units: 1,
    bytes: &[16, 2],
    split,
    decoder: include_str!("../../kernels/format/iq4_nl.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, codes] = bits::split(block, FIELDS);
    planes::copy([codes, d], planes);
}

/// The tile decoder.
pub(crate) struct Iq4Nl;

impl Tile for Iq4Nl {
    const COLUMNS: usize = 32;
    const BYTES: usize = 18;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 8;
    type Head<S: Simd> = ScaleHead<S, 0, 128>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the indices start at byte 2.
        unsafe { S::lookup(&CODES, bits::extract::<S>(lanes.word::<S>(2, word % 4), word / 4 * 4, 0, 4)) }
    }
}
