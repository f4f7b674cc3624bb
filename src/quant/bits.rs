//! How a block is taken apart: its fields, its half-precision scales, and the codes packed several to a byte.
//!
//! Every function expects a block, or a field, of the length its format states; `dequantize_row` sees to that.

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
