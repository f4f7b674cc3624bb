//! TQ1_0: 256 weights in 54 bytes.
//!
//! | bytes | field | holds |
//! |---|---|---|
//! | 48 | `fives` | five digits a byte: byte b of 32 holds weights b, b + 32, .. b + 128; byte b of the next 16 holds weights 160 + b, 176 + b, .. 224 + b |
//! | 4 | `fours` | four digits a byte: byte b holds weights 240 + b, 244 + b, 248 + b, 252 + b |
//! | 2 | `d` | scale, f16 |
//!
//! weight i = d * (digit(i) - 1)
//!
//! A byte is a fraction of 256 in base three, rounded up; the digits are those after the point.
//!
//! Source: GGUF type 34, ggml's `block_tq1_0`.

use super::{
    Lanes, Tile, bits,
    heads::ScaleHead,
    planes::{self, Planes},
};
use crate::simd::Simd;

pub(super) const FIELDS: [usize; 3] = [48, 4, 2];

/// Powers of three, by which a digit moves to the point.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

/// Returns the first byte, in a block, with digits of four weights, and the place of the digit.
#[inline(always)]
fn place(word: usize) -> (usize, usize) {
    match word {
        0..40 => (word % 8 * 4, word / 8),
        40..60 => (32 + word % 4 * 4, (word - 40) / 4),
        _ => (48, word - 60),
    }
}

pub(super) fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = bits::f16(&block[52..]);
    for (i, out) in out.iter_mut().enumerate() {
        let (byte, digit) = place(i / 4);
        let fraction = block[byte + i % 4].wrapping_mul(POWERS[digit]);
        *out = f32::from(((u16::from(fraction) * 3) >> 8) as i16 - 1) * d;
    }
}

pub(super) const PLANES: Planes = Planes {
    units: 8,
    bytes: &[32, 16, 4, 2],
    split,
    decoder: include_str!("../../kernels/format/tq1_0.wgsl"),
    scales: 1,
    table: &[],
};

fn split(block: &[u8], planes: &mut [&mut [u8]]) {
    planes::copy([&block[..32], &block[32..48], &block[48..52], &block[52..]], planes);
}

/// The tile decoder.
pub(crate) struct Tq10;

impl Tile for Tq10 {
    const COLUMNS: usize = 256;
    const BYTES: usize = 54;
    const FIELDS: &'static [usize] = &FIELDS;
    const GROUP: usize = 32;
    const BITS: u32 = 2;
    type Head<S: Simd> = ScaleHead<S, 52, 1>;

    /// # Safety: as [`Tile::codes`].
    #[inline(always)]
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I {
        let (byte, digit) = place(word);
        // SAFETY: by the caller; the digits start at byte 0.
        unsafe {
            let packed = lanes.word::<S>(0, byte / 4);
            let [power, three] = [i32::from(POWERS[digit]), 3].map(|x| S::splat_i(x * 0x0001_0001));
            // The digits of the upper byte of each half, in the lower one.
            let digits = |packed: S::I| {
                let fraction = S::and(packed, S::splat_i(0xff00_ff00_u32 as i32));
                S::mul_shorts_high(S::mul_shorts(fraction, power), three)
            };
            S::or(digits(S::shl(packed, 8)), S::shl(digits(packed), 8))
        }
    }
}
