//! How a packed matrix lies in memory for the CPU, and how a format's blocks are read from there.
//!
//! Sixteen rows are interleaved. A *tile* is the blocks that these rows have for the same columns, with the block's
//! fields in their order: a field of 4 bytes or more is a sequence of words, each stored for all sixteen rows before
//! the next; a field of 1 or 2 bytes is stored row after row. The bytes are those of the file, so nothing grows, and
//! a vector of 32-bit lanes holds one row a lane: products need no horizontal sums, and scales of many rows are
//! decoded at once.

use crate::simd::Simd;

pub(crate) use crate::simd::ROWS;

/// A place in a tile: the first of the lanes that a vector covers.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// The tile's first byte.
    pub tile: *const u8,
    /// The first row covered.
    pub row: usize,
}

impl Lanes {
    /// Word `index` of the field whose bytes in the block begin at `field`.
    ///
    /// # Safety
    /// The field has that word, the tile is readable, and the machine has the instruction set.
    #[inline(always)]
    pub unsafe fn word<S: Simd>(self, field: usize, index: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { S::load_i(self.tile.add(ROWS * field + 4 * (ROWS * index + self.row))) }
    }

    /// A half-precision field.
    ///
    /// # Safety
    /// As [`Lanes::word`].
    #[inline(always)]
    pub unsafe fn half<S: Simd>(self, field: usize) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load_f16(self.tile.add(ROWS * field + 2 * self.row).cast()) }
    }

    /// A field of two bytes, as an unsigned integer.
    ///
    /// # Safety
    /// As [`Lanes::word`].
    #[inline(always)]
    pub unsafe fn short<S: Simd>(self, field: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { S::load_shorts(self.tile.add(ROWS * field + 2 * self.row)) }
    }

    /// A field of one byte.
    ///
    /// # Safety
    /// As [`Lanes::word`].
    #[inline(always)]
    pub unsafe fn byte<S: Simd>(self, field: usize) -> S::I {
        // SAFETY: by the caller.
        unsafe { S::load_bytes(self.tile.add(ROWS * field + self.row)) }
    }
}

/// A block format, read from tiles: a weight is `scale * code - min`, with an unsigned code below `2^BITS` and with
/// the scale and the minimum of its group of columns.
pub(crate) trait Tile: 'static {
    /// Columns of a block.
    const COLUMNS: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Bytes of each field, in file order: [`Format::fields`](super::Format::fields).
    const FIELDS: &'static [usize];
    /// Columns that share a scale and a minimum: 16 or 32.
    const GROUP: usize;
    /// Bits of a code: 8 only where the minimum is 128 times the scale.
    const BITS: u32;
    /// What is decoded once for a tile.
    type Head<S: Simd>: Copy;

    /// Decodes what the groups share.
    ///
    /// # Safety
    /// The tile is readable and the machine has the instruction set.
    unsafe fn head<S: Simd>(lanes: Lanes) -> Self::Head<S>;

    /// A group's scale and minimum.
    ///
    /// # Safety
    /// As [`Tile::head`]; `group` is below `COLUMNS / GROUP`.
    unsafe fn scale_min<S: Simd>(head: &Self::Head<S>, group: usize) -> (S::F, S::F);

    /// The codes of columns `4 * word` to `4 * word + 3`, one a byte.
    ///
    /// # Safety
    /// As [`Tile::head`]; `word` is below `COLUMNS / 4`.
    unsafe fn codes<S: Simd>(lanes: Lanes, word: usize) -> S::I;
}

/// Does something for a format that is known at run time alone.
pub(crate) trait TileVisitor {
    /// What comes out.
    type Output;

    /// Does it for format `T`.
    ///
    /// # Safety
    /// As the visitor says.
    unsafe fn visit<T: Tile>(self) -> Self::Output;
}
