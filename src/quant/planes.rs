//! Defines the memory layout of packed matrices on GPUs.
//!
//! A matrix is stored as planes, one after the other. Each plane contains one part of every block,
//! such as the codes or the scales, in units of 32 weights: neighboring invocations read
//! neighboring units, which must be contiguous and aligned to words. All planes together have
//! exactly the bytes of the blocks. A table that the decoder looks up follows them. Within a unit,
//! codes are in the order in which kernels extract them (`kernels/shared/units.wgsl`): byte j of
//! word k of either half is the code of column 4 k + j.

/// Number of weights in a unit.
pub(crate) const UNIT: usize = 32;

/// The planes of a format, and their decoder.
#[derive(Debug)]
pub(crate) struct Planes {
    /// Number of units per call of [`split`](Self::split).
    pub units: usize,
    /// Size of these units in each plane, in bytes. Only the sizes of the last planes may not be
    /// multiples of 4.
    pub bytes: &'static [usize],
    /// Splits `units` units, as stored in the file, into the bytes of each plane.
    pub split: fn(block: &[u8], planes: &mut [&mut [u8]]),
    /// WGSL template of the decoder.
    pub decoder: &'static str,
    /// Words that the decoder looks up, which follow the planes: a grid's points, or nothing.
    pub table: &'static [u32],
    /// Number of scales, and of minima, in a unit of codes: 1, or 2 for 16 weights each. 0 if
    /// weights are floats.
    pub scales: usize,
}

impl Planes {
    /// Returns whether weights are codes with a scale and a minimum, instead of floats.
    pub fn coded(&self) -> bool {
        self.scales > 0
    }
}

const NIBBLES: u128 = 0x0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f;

fn read_u128(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

/// Splits 32 bytes with one unit in the low nibbles and another in the high nibbles into 16 bytes
/// each, with the first 16 codes of a unit in the low nibbles.
pub(super) fn four_bits(packed: &[u8], first: &mut [u8], second: &mut [u8]) {
    let (a, b) = (read_u128(&packed[..16]), read_u128(&packed[16..32]));
    first.copy_from_slice(&((a & NIBBLES) | ((b & NIBBLES) << 4)).to_le_bytes());
    second.copy_from_slice(&(((a >> 4) & NIBBLES) | (b & !NIBBLES)).to_le_bytes());
}

/// Applies [`four_bits`] to each 32 bytes of `packed`, in file order.
pub(super) fn four_bits_of_pairs(packed: &[u8], out: &mut [u8]) {
    for (packed, out) in packed.chunks_exact(32).zip(out.chunks_exact_mut(32)) {
        let (first, second) = out.split_at_mut(16);
        four_bits(packed, first, second);
    }
}

/// Splits 32 bytes with four units in two bits each into two words per unit, one for each half of
/// the unit.
pub(super) fn two_bits(packed: &[u8], out: &mut [u8]) {
    for (unit, out) in out.chunks_exact_mut(8).enumerate() {
        for (half, out) in out.chunks_exact_mut(4).enumerate() {
            let bits = |k: usize| ((read_u32(&packed[16 * half + 4 * k..]) >> (2 * unit)) & 0x0303_0303) << (2 * k);
            out.copy_from_slice(&(bits(0) | bits(1) | bits(2) | bits(3)).to_le_bytes());
        }
    }
}

/// Splits 32 bytes with eight units in one bit each into a word per unit.
pub(super) fn one_bit(packed: &[u8], out: &mut [u8]) {
    for (unit, out) in out.chunks_exact_mut(4).enumerate() {
        let bits = |k: usize| ((read_u32(&packed[4 * k..]) >> unit) & 0x0101_0101) << k;
        out.copy_from_slice(&(0..8).map(bits).fold(0, |word, bits| word | bits).to_le_bytes());
    }
}

/// Reorders the 32 consecutive bits of a unit as [`one_bit`] does.
pub(super) fn fifth_bits(bits: &[u8], out: &mut [u8]) {
    let bits = read_u32(bits);
    // The product copies each of four bits into the lowest bit of a byte.
    let spread = |k: usize| ((((bits >> (4 * k)) & 15) * 0x0020_4081) & 0x0101_0101) << k;
    out.copy_from_slice(&(0..8).map(spread).fold(0, |word, bits| word | bits).to_le_bytes());
}

/// Writes the scales and minima of eight units: `d` and `dmin`, then the low four bits of all
/// scales, the low four bits of all minima, and the high two bits of all scales and minima.
/// `scale_and_min` returns the scale and minimum of a unit.
pub(super) fn scales_and_mins(d_and_dmin: &[u8], scale_and_min: impl Fn(usize) -> (u8, u8), out: &mut [u8]) {
    let (mut low, mut high) = ([0u32; 2], 0u32);
    for unit in 0..8 {
        let (scale, min) = scale_and_min(unit);
        low[0] |= u32::from(scale & 15) << (4 * unit);
        low[1] |= u32::from(min & 15) << (4 * unit);
        high |= u32::from(scale >> 4) << (2 * unit) | u32::from(min >> 4) << (16 + 2 * unit);
    }
    out[..4].copy_from_slice(d_and_dmin);
    for (out, word) in out[4..].chunks_exact_mut(4).zip([low[0], low[1], high]) {
        out.copy_from_slice(&word.to_le_bytes());
    }
}

/// Copies a field of a block into each plane.
pub(super) fn copy<const N: usize>(fields: [&[u8]; N], planes: &mut [&mut [u8]]) {
    for (field, plane) in fields.iter().zip(planes) {
        plane.copy_from_slice(field);
    }
}
