//! Defines the memory layout of packed matrices on the CPU, and how formats decode it.
//!
//! Sixteen rows are interleaved. A *tile* consists of the blocks of these rows for the same
//! columns, with the block's fields in order. A field of 4 bytes or more is a sequence of words,
//! each stored for all sixteen rows before the next word; a field of 1 or 2 bytes is stored row by
//! row. A tile has exactly the bytes of its blocks, so a packed matrix is as large as in the file.
//! A vector of 32-bit lanes holds one row per lane, so products need no horizontal sums, and the
//! scales of many rows are decoded at once.

use crate::simd::Simd;

pub(crate) use crate::simd::ROWS;

/// The lanes of a vector within a tile: rows `row` to `row + WIDTH - 1`.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// First byte of the tile.
    pub tile: *const u8,
    /// First row of the vector.
    pub row: usize,
}

impl Lanes {
    /// Loads word `index` of the field at byte `field` of the block.
    ///
    /// # Safety
    /// The block has that word, the tile is readable, and the machine has `S`.
    #[inline(always)]
    pub unsafe fn word<S: Simd>(self, field: usize, index: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { S::load_i(self.tile.add(ROWS * field + 4 * (ROWS * index + self.row))) }
    }

    /// Loads words 0 to 3 of the field at byte `field` of the block.
    ///
    /// # Safety
    /// As [`Lanes::word`].
    #[inline(always)]
    pub unsafe fn four_words<S: Simd>(self, field: usize) -> [S::I; 4] {
        // SAFETY: by the caller.
        unsafe {
            [self.word::<S>(field, 0), self.word::<S>(field, 1), self.word::<S>(field, 2), self.word::<S>(field, 3)]
        }
    }

    /// Loads the f16 field at byte `field` of the block, converted to f32.
    ///
    /// # Safety
    /// As [`Lanes::word`].
    #[inline(always)]
    pub unsafe fn f16<S: Simd>(self, field: usize) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load_f16(self.tile.add(ROWS * field + 2 * self.row).cast()) }
    }

    /// Loads the u16 field at byte `field` of the block.
    ///
    /// # Safety
    /// As [`Lanes::word`].
    #[inline(always)]
    pub unsafe fn u16<S: Simd>(self, field: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { S::load_shorts(self.tile.add(ROWS * field + 2 * self.row)) }
    }

    /// Loads the u8 field at byte `field` of the block.
    ///
    /// # Safety
    /// As [`Lanes::word`].
    #[inline(always)]
    pub unsafe fn u8<S: Simd>(self, field: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { S::load_bytes(self.tile.add(ROWS * field + self.row)) }
    }
}

/// The tile decoder of a block format. A weight is `scale * code - min`, with an unsigned code less
/// than `2^BITS`, and with the scale and minimum of its scale group: consecutive columns that share
/// them.
///
/// # Safety
/// Each method needs a readable tile, and a machine that has `S`.
pub(crate) trait Tile: 'static {
    /// Columns of a block.
    const COLUMNS: usize;
    /// Size of a block in bytes.
    const BYTES: usize;
    /// Size of each field in bytes, in file order: [`Format::fields`](super::Format::fields).
    const FIELDS: &'static [usize];
    /// Columns of a scale group: 16 or 32.
    const GROUP: usize;
    /// Bits of a code. Must be less than 8 unless the minimum is 128 times the scale.
    const BITS: u32;
    /// Scales and minima of all scale groups.
    type Head<S: Simd>: TileHead<S>;

    /// Returns the codes of columns `4 * word` to `4 * word + 3`, one per byte.
    ///
    /// # Safety
    /// The tile is readable, the machine has `S`, and `word` is less than `COLUMNS / 4`.
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I;

    /// Returns the codes of words `2 * pair` and `2 * pair + 1`, which may be decoded together.
    ///
    /// # Safety
    /// As [`Tile::codes`] for both words.
    #[inline(always)]
    unsafe fn pair<S: Simd>(lanes: Lanes, pair: usize) -> [S::I; 2] {
        // SAFETY: by the caller.
        unsafe { [Self::codes::<S>(lanes, 2 * pair), Self::codes::<S>(lanes, 2 * pair + 1)] }
    }

    /// Decodes the scales and minima of all scale groups.
    ///
    /// # Safety
    /// The tile is readable and the machine has `S`.
    #[inline(always)]
    unsafe fn head<S: Simd>(lanes: Lanes) -> Self::Head<S> {
        // SAFETY: by the caller.
        unsafe { Self::Head::decode(lanes) }
    }

    /// Returns the scale and the minimum of a scale group.
    ///
    /// # Safety
    /// The machine has `S`, and `group` is less than `COLUMNS / GROUP`.
    #[inline(always)]
    unsafe fn scale_min<S: Simd>(head: &Self::Head<S>, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe { head.scale_min(group) }
    }
}

/// The scales and minima of a tile's rows. They are decoded once per tile, before the codes.
pub(crate) trait TileHead<S: Simd>: Copy {
    /// Decodes the scales and minima of all scale groups.
    ///
    /// # Safety
    /// The tile is readable and the machine has `S`.
    unsafe fn decode(lanes: Lanes) -> Self;

    /// Returns the scale and the minimum of a scale group.
    ///
    /// # Safety
    /// The machine has `S`, and the block has that scale group.
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F);
}

/// An operation that is generic over the format of a matrix.
pub(crate) trait TileVisitor {
    /// Result of the operation.
    type Output;

    /// Runs the operation for the format `T`.
    ///
    /// # Safety
    /// As the implementation says.
    unsafe fn visit<T: Tile>(self) -> Self::Output;
}
