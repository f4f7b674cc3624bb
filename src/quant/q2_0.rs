//! Q2_0: 64 weights in 18 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale, f16 |
//! | 16 | `codes` | 2 bits per weight, low bits first |
//!
//! weight i = d * (code(i) - 1)
//!
//! Source: GGUF type 42, ggml's `block_q2_0`.

use super::{Lanes, Tile, bits, heads::ScaleHead, planes::Planes};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 2] = [2, 16];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        *out = f32::from(bits::code(codes, 2, 1, i) as i8 - 1) * d;
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 2,
    bytes: &[16, 2],
    split,
    decoder: include_str!("../../kernels/format/q2_0.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [d, codes] = bits::split(block, FIELDS);
    // Byte j of 16 weights has column 4 k + j in its bits 2 k.
    for (i, out) in planes[0].iter_mut().enumerate() {
        let code = |k: usize| bits::code(codes, 2, 1, i / 4 * 16 + 4 * k + i % 4) << (2 * k);
        *out = code(0) | code(1) | code(2) | code(3);
    }
    planes[1].copy_from_slice(d);
}

/// The tile decoder.
pub(crate) struct Q20;

impl Tile for Q20 {
    const COLUMNS: usize = 64;
    const BYTES: usize = 18;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 2;
    type Head<S: Simd> = ScaleHead<S, 0, 1>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 2.
        unsafe { bits::two_bits::<S>(lanes.word::<S>(2, word / 4), word % 4) }
    }
}
