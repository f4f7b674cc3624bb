//! Q2_K: 256 weights in 84 bytes, in scale groups of 16.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 16 | `scales` | one byte per group: scale in the low nibble, minimum in the high nibble |
//! | 64 | `codes` | 2 bits per weight: byte b of 32 holds weights b, b + 32, b + 64, b + 96 |
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `dmin` | scale of the minima, f16 |
//!
//! weight i = d * scale(i / 16) * code(i) - dmin * min(i / 16)
//!
//! Source: GGUF type 10, ggml's `block_q2_K`.

use super::{
    Lanes, Tile, TileHead, bits,
    planes::{self, Planes},
};
use crate::simd::Simd;

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

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[64, 16, 4],
    split,
    decoder: include_str!("../../kernels/format/q2_k.wgsl"),
    scales: 2,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [scales, codes, ..] = bits::split(block, FIELDS);
    for (codes, out) in codes.chunks_exact(32).zip(planes[0].chunks_exact_mut(32)) {
        planes::two_bits(codes, out);
    }
    planes[1].copy_from_slice(scales);
    planes[2].copy_from_slice(&block[80..]);
}

/// Scales and minima of a tile's rows.
#[derive(Clone, Copy)]
pub(crate) struct Q2KHead<S: Simd> {
    d: S::F,
    dmin: S::F,
    /// Scales and minima of 16 groups, one byte per group as in the block.
    groups: [S::I; 4],
}

impl<S: Simd> TileHead<S> for Q2KHead<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller; the field `scales` is at byte 0, `d` at byte 80, `dmin` at byte
        // 82.
        unsafe { Self { d: lanes.f16::<S>(80), dmin: lanes.f16::<S>(82), groups: lanes.four_words::<S>(0) } }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let (word, bit) = (self.groups[group / 4], group % 4 * 8);
            let scale = bits::unsigned::<S>(word, bit, 4);
            let min = bits::unsigned::<S>(word, bit + 4, 4);
            (S::mul(self.d, scale), S::mul(self.dmin, min))
        }
    }
}

/// The tile decoder.
pub(crate) struct Q2K;

impl Tile for Q2K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 84;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 16;
    const BITS: u32 = 2;
    type Head<S: Simd> = Q2KHead<S>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes start at byte 16.
        unsafe { bits::extract::<S>(lanes.word::<S>(16, word / 32 * 8 + word % 8), word / 8 % 4 * 2, 0, 2) }
    }
}
