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

use super::{
    Lanes, Tile, bits,
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
    coded: true,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let [scales, codes, ..] = bits::split(block, FIELDS);
    for (codes, out) in codes.chunks_exact(32).zip(planes[0].chunks_exact_mut(32)) {
        planes::two_bits(codes, out);
    }
    planes[1].copy_from_slice(scales);
    planes[2].copy_from_slice(&block[80..]);
}

/// What a tile's groups share.
#[derive(Clone, Copy)]
pub(crate) struct Head<S: Simd> {
    d: S::F,
    dmin: S::F,
    /// A byte a group, as in the block.
    groups: [S::I; 4],
}

/// The decoder of tiles.
pub(crate) struct Q2K;

impl Tile for Q2K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 84;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 16;
    const BITS: u32 = 2;
    type Head<S: Simd> = Head<S>;

    #[inline(always)]
    unsafe fn head<S: Simd>(lanes: Lanes) -> Self::Head<S> {
        // SAFETY: by the caller; the scales begin at byte 0, `d` and `dmin` are at bytes 80 and 82.
        unsafe {
            let groups = [lanes.word::<S>(0, 0), lanes.word::<S>(0, 1), lanes.word::<S>(0, 2), lanes.word::<S>(0, 3)];
            Head { d: lanes.half::<S>(80), dmin: lanes.half::<S>(82), groups }
        }
    }

    #[inline(always)]
    unsafe fn scale_min<S: Simd>(head: &Self::Head<S>, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let (four, at) = (head.groups[group / 4], group % 4 * 8);
            let scale = bits::unsigned::<S>(four, at, 4);
            let min = bits::unsigned::<S>(four, at + 4, 4);
            (S::mul(head.d, scale), S::mul(head.dmin, min))
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the codes begin at byte 16.
        unsafe { bits::extract::<S>(lanes.word::<S>(16, word / 32 * 8 + word % 8), word / 8 % 4 * 2, 0, 2) }
    }
}
