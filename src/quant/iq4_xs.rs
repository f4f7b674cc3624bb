//! IQ4_XS: 256 weights in 136 bytes, in groups of 32.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 2 | `d` | scale of the scales, f16 |
//! | 2 | `scales_high` | the scales' bits 4 and 5, two bits a group, as a little-endian integer |
//! | 4 | `scales_low` | the scales' bits 0 to 3, four bits a group, as a little-endian integer |
//! | 128 | `codes` | 4 bits a weight: 16 bytes hold a group, its first 16 weights in the low halves |
//!
//! weight i = d * (scale(i / 32) - 32) * VALUES[code(i)], with the values of `IQ4_NL`
//!
//! Source: GGUF's type 23, ggml's `block_iq4_xs`.

use super::{
    Lanes, Tile, bits, iq4_nl,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 4] = [2, 2, 4, 128];

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let [d, scales_high, scales_low, codes] = bits::split(block, FIELDS);
    let d = bits::f16(d);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = bits::code(scales_low, 4, 1, i / 32) | (bits::code(scales_high, 2, 1, i / 32) << 4);
        let value = iq4_nl::VALUES[usize::from(bits::code(codes, 4, 16, i))];
        *out = d * f32::from(scale as i8 - 32) * f32::from(value);
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[128, 8],
    split,
    decoder: include_str!("../../kernels/format/iq4_xs.wgsl"),
    coded: true,
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    let (head, codes) = block.split_at(8);
    planes::copy([codes, head], planes);
}

/// What a tile's groups share.
#[derive(Clone, Copy)]
pub(crate) struct Head<S: Simd> {
    d: S::F,
    /// What a scale of 0 stands for: -32 `d`.
    zero: S::F,
    scales_high: S::I,
    scales_low: S::I,
}

/// The decoder of tiles.
pub(crate) struct Iq4Xs;

impl Tile for Iq4Xs {
    const COLUMNS: usize = 256;
    const BYTES: usize = 136;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 8;
    type Head<S: Simd> = Head<S>;

    #[inline(always)]
    unsafe fn head<S: Simd>(lanes: Lanes) -> Self::Head<S> {
        // SAFETY: by the caller.
        unsafe {
            let d = lanes.half::<S>(0);
            Head {
                d,
                zero: S::mul(d, S::splat(-32.0)),
                scales_high: lanes.short::<S>(2),
                scales_low: lanes.word::<S>(4, 0),
            }
        }
    }

    #[inline(always)]
    unsafe fn scale_min<S: Simd>(head: &Self::Head<S>, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let low = S::and(S::shr(head.scales_low, 4 * group as u32), S::splat_i(15));
            let high = S::shl(S::and(S::shr(head.scales_high, 2 * group as u32), S::splat_i(3)), 4);
            let scale = S::fma(head.d, S::to_f(S::or(low, high)), head.zero);
            (scale, S::mul(scale, S::splat(128.0)))
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        // SAFETY: by the caller; the indices begin at byte 8.
        unsafe {
            let packed = lanes.word::<S>(8, word / 8 * 4 + word % 4);
            S::lookup(&iq4_nl::CODES, bits::extract::<S>(packed, word / 4 % 2 * 4, 0, 4))
        }
    }
}
