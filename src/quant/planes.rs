//! How a graphics processor keeps a format.
//!
//! Neighbouring invocations read neighbouring units of 32 weights, so the parts of a block that belong to a unit must
//! lie side by side and at whole words: a matrix becomes a few planes, one after the other, each with its part of every
//! block. No plane takes more than the block's own bytes. Within a unit, codes are in the order in which a kernel
//! takes them out (`kernels/prelude.wgsl`): byte j of word k of either half is that of column 4 k + j.

/// Weights in a unit.
pub(crate) const UNIT: usize = 32;

/// The planes of a format.
#[derive(Debug)]
pub(crate) struct Planes {
    /// Units that [`split`](Self::split) takes at once.
    pub units: usize,
    /// The bytes that these units have in each plane. All but the last few are whole words.
    pub bytes: &'static [usize],
    /// Takes the bytes of `units` units apart, as they lie in the file, into each plane's part.
    pub split: fn(block: &[u8], planes: &mut [&mut [u8]]),
    /// The decoder, a template in WGSL.
    pub decoder: &'static str,
    /// Whether weights are codes with a scale and a minimum, rather than floats.
    pub coded: bool,
}

const NIBBLES: u128 = 0x0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f;

fn wide(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

/// Two units of which 32 bytes hold the first in their low halves and the second in their high ones: 16 bytes each, with
/// a unit's first 16 codes in the low halves.
pub(super) fn four_bits(packed: &[u8], first: &mut [u8], second: &mut [u8]) {
    let (a, b) = (wide(&packed[..16]), wide(&packed[16..32]));
    first.copy_from_slice(&((a & NIBBLES) | ((b & NIBBLES) << 4)).to_le_bytes());
    second.copy_from_slice(&(((a >> 4) & NIBBLES) | (b & !NIBBLES)).to_le_bytes());
}

/// As [`four_bits`], for the units of two pairs of 32 bytes, in the file's order.
pub(super) fn four_bits_of_pairs(packed: &[u8], out: &mut [u8]) {
    for (packed, out) in packed.chunks_exact(32).zip(out.chunks_exact_mut(32)) {
        let (first, second) = out.split_at_mut(16);
        four_bits(packed, first, second);
    }
}

/// Four units of two bits of which 32 bytes hold each in another pair of bits: two words a unit, one for each half.
pub(super) fn two_bits(packed: &[u8], out: &mut [u8]) {
    for (unit, out) in out.chunks_exact_mut(8).enumerate() {
        for (half, out) in out.chunks_exact_mut(4).enumerate() {
            let bits = |k: usize| ((word(&packed[16 * half + 4 * k..]) >> (2 * unit)) & 0x0303_0303) << (2 * k);
            out.copy_from_slice(&(bits(0) | bits(1) | bits(2) | bits(3)).to_le_bytes());
        }
    }
}

/// Eight units of one bit of which 32 bytes hold each in another bit: a word a unit.
pub(super) fn one_bit(packed: &[u8], out: &mut [u8]) {
    for (unit, out) in out.chunks_exact_mut(4).enumerate() {
        let bits = |k: usize| ((word(&packed[4 * k..]) >> unit) & 0x0101_0101) << k;
        out.copy_from_slice(&(0..8).map(bits).fold(0, |word, bits| word | bits).to_le_bytes());
    }
}

/// The bits of a unit, which follow each other, in the order of [`one_bit`].
pub(super) fn fifth_bits(bits: &[u8], out: &mut [u8]) {
    let bits = word(bits);
    // Spreads four bits over four bytes.
    let spread = |k: usize| ((((bits >> (4 * k)) & 15) * 0x0020_4081) & 0x0101_0101) << k;
    out.copy_from_slice(&(0..8).map(spread).fold(0, |word, bits| word | bits).to_le_bytes());
}

/// Scales and minima of eight units: both their scales, then the low four bits of the scales, those of the minima, and
/// two high bits of each.
pub(super) fn scales_and_mins(both: &[u8], pair: impl Fn(usize) -> (u8, u8), out: &mut [u8]) {
    let (mut low, mut high) = ([0u32; 2], 0u32);
    for unit in 0..8 {
        let (scale, min) = pair(unit);
        low[0] |= u32::from(scale & 15) << (4 * unit);
        low[1] |= u32::from(min & 15) << (4 * unit);
        high |= u32::from(scale >> 4) << (2 * unit) | u32::from(min >> 4) << (16 + 2 * unit);
    }
    out[..4].copy_from_slice(both);
    for (out, word) in out[4..].chunks_exact_mut(4).zip([low[0], low[1], high]) {
        out.copy_from_slice(&word.to_le_bytes());
    }
}

/// Copies fields of a block into planes, in the order of the planes.
pub(super) fn copy<const N: usize>(fields: [&[u8]; N], planes: &mut [&mut [u8]]) {
    for (field, plane) in fields.iter().zip(planes) {
        plane.copy_from_slice(field);
    }
}
