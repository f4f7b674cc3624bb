//! How a block is taken apart: its fields, its half-precision scales, and the codes packed several to a byte.
//!
//! Every function expects a block, or a field, of the length its format states; `dequantize_row` sees to that.

use super::Lanes;
use crate::simd::Simd;

/// The block's fields, whose sizes in bytes are `fields`, in file order.
pub(super) fn split<const N: usize>(block: &[u8], fields: [usize; N]) -> [&[u8]; N] {
    let mut rest = block;
    fields.map(|size| {
        let (field, tail) = rest.split_at(size);
        rest = tail;
        field
    })
}

/// A field of one half-precision float.
pub(super) fn f16(field: &[u8]) -> f32 {
    half::f16::from_le_bytes([field[0], field[1]]).to_f32()
}

/// Code `i` of codes that are `width` bits wide, where one byte holds those of `8 / width` items that lie `run` apart,
/// the first in its lowest bits.
///
/// So `run` bytes hold `run * 8 / width` codes: first those in the lowest bits of each byte, then those in the next,
/// and so on. With a run of 1 the codes simply follow each other, as the bits of a little-endian integer do.
#[inline]
pub(super) fn code(bytes: &[u8], width: usize, run: usize, i: usize) -> u8 {
    let per_byte = 8 / width;
    let byte = bytes[i / (run * per_byte) * run + i % run];
    let shift = width * (i / run % per_byte);
    (byte >> shift) & ((1 << width) - 1)
}

/// The scale and the minimum of one of 8 groups, six bits each, from the 12 bytes that `Q4_K` and `Q5_K` keep them in.
///
/// Bytes 0 to 3 hold scales 0 to 3 in their low six bits and bytes 4 to 7 the minima 0 to 3. Bytes 8 to 11 hold the low
/// four bits of scales (low half) and minima (high half) 4 to 7, whose upper two bits top the first eight bytes.
#[inline]
pub(super) fn scale_and_min(scales: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (scales[group] & 63, scales[group + 4] & 63);
    }
    let low = scales[group + 4];
    let (top_of_scale, top_of_min) = (scales[group - 4] >> 6, scales[group] >> 6);
    ((low & 15) | (top_of_scale << 4), (low >> 4) | (top_of_min << 4))
}

/// A table of signed values with `by` added to each, so that none is negative.
pub(super) const fn raise(values: [i8; 16], by: i16) -> [u8; 16] {
    let mut raised = [0; 16];
    let mut i = 0;
    while i < 16 {
        raised[i] = (values[i] as i16 + by) as u8;
        i += 1;
    }
    raised
}

/// The scales and minima of `Q4_K` and `Q5_K`, whose blocks both begin with `d`, `dmin` and the 12 bytes that
/// [`scale_and_min`] reads.
#[derive(Clone, Copy)]
pub(crate) struct ScalesAndMins<S: Simd> {
    d: S::F,
    dmin: S::F,
    /// The scales of groups 0 to 3, then 4 to 7, one a byte.
    scales: [S::I; 2],
    mins: [S::I; 2],
}

/// Decodes the scales and minima of a tile's rows.
///
/// # Safety
/// As [`Tile::head`](super::Tile::head).
#[inline(always)]
pub(super) unsafe fn scales_and_mins<S: Simd>(lanes: Lanes) -> ScalesAndMins<S> {
    // SAFETY: by the caller.
    unsafe {
        let words = [lanes.word::<S>(4, 0), lanes.word::<S>(4, 1), lanes.word::<S>(4, 2)];
        let low_six = S::splat_i(0x3f3f_3f3f);
        let low_four = S::splat_i(0x0f0f_0f0f);
        let top_of_scales = S::and(S::shr(words[0], 2), S::splat_i(0x3030_3030));
        let top_of_mins = S::and(S::shr(words[1], 2), S::splat_i(0x3030_3030));
        ScalesAndMins {
            d: lanes.half::<S>(0),
            dmin: lanes.half::<S>(2),
            scales: [S::and(words[0], low_six), S::or(S::and(words[2], low_four), top_of_scales)],
            mins: [S::and(words[1], low_six), S::or(S::and(S::shr(words[2], 4), low_four), top_of_mins)],
        }
    }
}

impl<S: Simd> ScalesAndMins<S> {
    /// A group's scale and minimum.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    pub unsafe fn group(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let scale = unsigned::<S>(self.scales[group / 4], group % 4 * 8, 8);
            let min = unsigned::<S>(self.mins[group / 4], group % 4 * 8, 8);
            (S::mul(self.d, scale), S::mul(self.dmin, min))
        }
    }
}

/// The `width` bits of each byte that begin at its bit `from`, moved to bit `to`, and zeros beside them.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
pub(super) unsafe fn extract<S: Simd>(words: S::I, from: usize, to: usize, width: usize) -> S::I {
    let mask = (1 << width) - 1;
    // Two shifts need no branch on `from`; where it is a constant, the compiler makes one of them.
    // SAFETY: by the caller.
    unsafe { S::shl(S::and(S::shr(words, from as u32), S::splat_i(i32::from_le_bytes([mask; 4]))), to as u32) }
}

/// Bits `4 * word` to `4 * word + 3` of each lane, one in each byte's bit 4, and zeros beside them.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
pub(super) unsafe fn fifth_bits<S: Simd>(high: S::I, word: usize) -> S::I {
    // Of a bit's place, the lowest two binary digits say which byte it belongs to; exchanging them with the upper two
    // moves it there, and is the same work for all words, so that it is done once.
    // SAFETY: by the caller.
    unsafe {
        let exchanged = exchange_bits::<S>(high, 14, 0x0000_cccc);
        let exchanged = exchange_bits::<S>(exchanged, 7, 0x00aa_00aa);
        extract::<S>(exchanged, word % 2 * 4 + word / 2, 4, 1)
    }
}

/// Each lane with the bits in `mask` and those `distance` above them exchanged.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn exchange_bits<S: Simd>(words: S::I, distance: u32, mask: i32) -> S::I {
    // SAFETY: by the caller.
    unsafe {
        let differing = S::and(S::xor(words, S::shr(words, distance)), S::splat_i(mask));
        S::xor(words, S::xor(differing, S::shl(differing, distance)))
    }
}

/// The `width` bits of each lane that begin at bit `from`, as a number.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
pub(super) unsafe fn unsigned<S: Simd>(words: S::I, from: usize, width: usize) -> S::F {
    // SAFETY: by the caller.
    unsafe { S::to_f(S::and(S::shr(words, from as u32), S::splat_i((1 << width) - 1))) }
}

/// Byte `index` of each lane, as a number from -128 to 127.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
pub(super) unsafe fn signed_byte<S: Simd>(words: S::I, index: usize) -> S::F {
    // SAFETY: by the caller.
    unsafe { S::to_f(S::sar(S::shl(words, 24 - 8 * index as u32), 24)) }
}
