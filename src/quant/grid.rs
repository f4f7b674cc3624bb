//! Decodes points of grids and signs, which the formats `IQ1`, `IQ2` and `IQ3` have in common.
//!
//! A table has a word for each point. The level of weight i is in the low nibble of byte i, or for
//! weights 4 to 7 in the high nibble of byte i - 4. Bit 3 of a nibble is free for a sign.

use super::bits;
use crate::simd::Simd;

/// Returns the table of points of eight levels of two bits.
pub(super) const fn eight_levels<const N: usize>(points: [u16; N]) -> [u32; N] {
    let mut table = [0; N];
    let mut i = 0;
    while i < 8 * N {
        let level = (points[i / 8] >> (2 * (i % 8))) as u32 & 3;
        table[i / 8] |= level << (8 * (i % 4) + 4 * (i / 4 % 2));
        i += 1;
    }
    table
}

/// Returns the table of points of four levels of four bits.
pub(super) const fn four_levels<const N: usize>(points: [u16; N]) -> [u32; N] {
    let mut table = [0; N];
    let mut i = 0;
    while i < 4 * N {
        let level = (points[i / 4] >> (4 * (i % 4))) as u32 & 15;
        table[i / 4] |= level << (8 * (i % 4));
        i += 1;
    }
    table
}

/// Returns points of four levels with the levels' values in place of the levels.
pub(super) const fn with_values<const N: usize>(points: [u32; N], values: [u8; 8]) -> [u32; N] {
    let mut table = [0; N];
    let mut i = 0;
    while i < 4 * N {
        let level = (points[i / 4] >> (8 * (i % 4))) as usize & 15;
        table[i / 4] |= (values[level] as u32) << (8 * (i % 4));
        i += 1;
    }
    table
}

/// Returns the level of weight `i` of a point.
pub(super) fn level(point: u32, i: usize) -> usize {
    (point >> (8 * (i % 4) + 4 * (i / 4))) as usize & 15
}

/// Returns the eight signs of which seven are stored: the number of ones is even.
pub(super) fn even_signs(seven: u32) -> u8 {
    let seven = seven as u8 & 127;
    seven | ((seven.count_ones() as u8 & 1) << 7)
}

/// Returns -1 if bit `i` of `signs` is set, and 1 otherwise.
pub(super) fn sign(signs: u8, i: usize) -> f32 {
    if (signs >> i) & 1 == 1 { -1.0 } else { 1.0 }
}

/// Returns the code of each nibble of a signed point: `offset` plus the value of its level, or
/// minus the value if bit 3 is set.
pub(super) const fn signed_codes<const N: usize>(values: [u8; N], offset: u8) -> [u8; 16] {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < N {
        codes[i] = offset + values[i];
        codes[8 + i] = offset - values[i];
        i += 1;
    }
    codes
}

/// Spreads the low eight bits of each lane, whose other bits are zero, to the free bits of a point:
/// bit i to bit 3 of byte i, or to bit 7 of byte i - 4.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn spread_signs<S: Simd>(signs: S::I) -> S::I {
    // SAFETY: by the caller.
    unsafe {
        let twice = S::or(S::shl(signs, 3), S::shl(signs, 10));
        S::and(S::or(twice, S::shl(twice, 14)), S::splat_i(0x8888_8888_u32 as i32))
    }
}

/// Returns the eight signs of which the seven bits from `from` on of each lane are stored.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn even_signs_at<S: Simd>(words: S::I, from: usize) -> S::I {
    // Bit 7 for an odd number of ones.
    static ODD: [u8; 16] = [0, 128, 128, 0, 128, 0, 0, 128, 128, 0, 0, 128, 0, 128, 128, 0];
    // SAFETY: by the caller.
    unsafe {
        let sevens = field::<S>(words, from, 7);
        let low = S::lookup(&ODD, S::and(sevens, S::splat_i(15)));
        S::or(sevens, S::xor(low, S::lookup(&ODD, S::shr(sevens, 4))))
    }
}

/// Returns bits `from` to `from + width - 1` of each lane, as a number.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn field<S: Simd>(words: S::I, from: usize, width: u32) -> S::I {
    // SAFETY: by the caller.
    unsafe { S::and(S::shr(words, from as u32), S::splat_i((1 << width) - 1)) }
}

/// Looks up the nibbles of points: those of weights 0 to 3, and of weights 4 to 7.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn codes_of<S: Simd>(codes: &[u8; 16], points: S::I) -> [S::I; 2] {
    // SAFETY: by the caller.
    unsafe {
        [S::lookup(codes, bits::extract::<S>(points, 0, 0, 4)), S::lookup(codes, bits::extract::<S>(points, 4, 0, 4))]
    }
}
