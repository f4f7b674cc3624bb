//! Extracts the fields of a block, its f16 scales, and codes that are packed several to a byte.
//!
//! Each function expects a block or field of the length that its format defines; `dequantize_row`
//! checks it.

use crate::simd::Simd;

/// Splits a block into its fields, whose sizes in bytes are `fields`, in file order.
pub(super) fn split<const N: usize>(block: &[u8], fields: [usize; N]) -> [&[u8]; N] {
    let mut rest = block;
    fields.map(|size| {
        let (field, tail) = rest.split_at(size);
        rest = tail;
        field
    })
}

/// Converts a field of one f16 to f32.
pub(super) fn f16(field: &[u8]) -> f32 {
    half::f16::from_le_bytes([field[0], field[1]]).to_f32()
}

/// Returns word `index` of a field.
pub(super) fn u32(field: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| field[4 * index + i]))
}

/// Returns code `i` of codes of `width` bits, packed in runs of `run` bytes.
///
/// A run contains `run * 8 / width` codes: first the codes in the lowest bits of each of its bytes,
/// then the codes in the next bits, and so on. With a run of 1, codes follow one another like the
/// bits of a little-endian integer.
#[inline]
pub(super) fn code(bytes: &[u8], width: usize, run: usize, i: usize) -> u8 {
    let per_byte = 8 / width;
    let byte = bytes[i / (run * per_byte) * run + i % run];
    let shift = width * (i / run % per_byte);
    (byte >> shift) & ((1 << width) - 1)
}

/// Returns the 6-bit scale and minimum of one of 8 groups, from the 12 bytes in which `Q4_K` and
/// `Q5_K` pack them.
///
/// Bytes 0 to 3 contain scales 0 to 3 in their low six bits, and bytes 4 to 7 minima 0 to 3. Bytes
/// 8 to 11 contain the low four bits of scales (low nibble) and minima (high nibble) 4 to 7, whose
/// upper two bits are the upper two bits of the first eight bytes.
#[inline]
pub(super) fn scale_and_min(scales: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (scales[group] & 63, scales[group + 4] & 63);
    }
    let low = scales[group + 4];
    let (top_of_scale, top_of_min) = (scales[group - 4] >> 6, scales[group] >> 6);
    ((low & 15) | (top_of_scale << 4), (low >> 4) | (top_of_min << 4))
}

/// Adds `offset` to each value of a table, so that all are unsigned.
pub(super) const fn raise(values: [i8; 16], offset: i16) -> [u8; 16] {
    let mut raised = [0; 16];
    let mut i = 0;
    while i < 16 {
        raised[i] = (values[i] as i16 + offset) as u8;
        i += 1;
    }
    raised
}

/// Moves the `width` bits from bit `from` on of each byte to bit `to`, and clears the other bits.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn extract<S: Simd>(words: S::I, from: usize, to: usize, width: usize) -> S::I {
    let mask = (1 << width) - 1;
    // Two shifts need no branch on `from`; the compiler merges them if it is a constant.
    // SAFETY: by the caller.
    unsafe { S::shl(S::and(S::shr(words, from as u32), S::splat_i(i32::from_le_bytes([mask; 4]))), to as u32) }
}

/// Returns bits `4 * word` to `4 * word + 3` of each lane, each in bit `to` of its own byte, with
/// all other bits cleared.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn one_bit<S: Simd>(words: S::I, word: usize, to: usize) -> S::I {
    // The two lowest binary digits of a bit's index are its byte in the result. Exchanging them
    // with the two highest digits moves the bit to that byte. This is the same for all words, so it
    // is computed once. SAFETY: by the caller.
    unsafe {
        let exchanged = exchange_bits::<S>(words, 14, 0x0000_cccc);
        let exchanged = exchange_bits::<S>(exchanged, 7, 0x00aa_00aa);
        extract::<S>(exchanged, word % 2 * 4 + word / 2, to, 1)
    }
}

/// Returns bits `8 * word` to `8 * word + 7` of each lane, two in each byte, with all other bits
/// cleared.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn two_bits<S: Simd>(words: S::I, word: usize) -> S::I {
    // Transposes the 4 by 4 pairs of bits, which is the same for all words. SAFETY: by the caller.
    unsafe {
        let exchanged = exchange_bits::<S>(words, 6, 0x00cc_00cc);
        extract::<S>(exchange_bits::<S>(exchanged, 12, 0x0000_f0f0), 2 * word, 0, 2)
    }
}

/// Exchanges the bits in `mask` of each lane with the bits `distance` above them.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
unsafe fn exchange_bits<S: Simd>(words: S::I, distance: u32, mask: i32) -> S::I {
    // SAFETY: by the caller.
    unsafe {
        let differing = S::and(S::xor(words, S::shr(words, distance)), S::splat_i(mask));
        S::xor(words, S::xor(differing, S::shl(differing, distance)))
    }
}

/// Converts the `width` bits from bit `from` on of each lane to f32, as an unsigned integer.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn unsigned<S: Simd>(words: S::I, from: usize, width: usize) -> S::F {
    // SAFETY: by the caller.
    unsafe { S::to_f(S::and(S::shr(words, from as u32), S::splat_i((1 << width) - 1))) }
}

/// Converts byte `index` of each lane to f32, as a signed integer.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
pub(super) unsafe fn signed_byte<S: Simd>(words: S::I, index: usize) -> S::F {
    // SAFETY: by the caller.
    unsafe { S::to_f(S::sar(S::shl(words, 24 - 8 * index as u32), 24)) }
}
