//! A block-quantised matrix in the order that the kernels read: sixteen rows interleaved, the file's bytes otherwise.
//!
//! See [`crate::quant::Tile`] for the order within a tile. Tiles of the same sixteen rows follow one another, and
//! groups of sixteen rows follow those; a last group that is not full is filled up with zero bytes.

use std::{alloc, ops::Range, ptr::NonNull, slice};

use crate::{
    DType,
    quant::{self, ROWS, Tile, TileVisitor},
};

/// Memory aligned for any vector, zeroed at first.
pub(super) struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    const ALIGN: usize = 64;

    /// `len` bytes of zeros; `None` where there is no such memory.
    pub fn new(len: usize) -> Option<Self> {
        let layout = alloc::Layout::from_size_align(len.max(1), Self::ALIGN).ok()?;
        // SAFETY: the layout has a size above 0.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { start, len })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` bytes were allocated and zeroed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, which was valid there.
        unsafe {
            let layout = alloc::Layout::from_size_align_unchecked(self.len.max(1), Self::ALIGN);
            alloc::dealloc(self.start.as_ptr(), layout);
        }
    }
}

/// A matrix `[rows, columns]` in tiles.
pub(super) struct Packed {
    pub dtype: DType,
    pub rows: usize,
    pub columns: usize,
    data: AlignedBytes,
}

impl Packed {
    /// Room for such a matrix; `None` for plain floats, which have no tiles, and where memory is out or the sizes
    /// overflow.
    pub fn new(dtype: DType, rows: usize, columns: usize) -> Option<Self> {
        if dtype.is_float() {
            return None;
        }
        let group = dtype.row_bytes(columns)?.checked_mul(ROWS)?;
        let data = AlignedBytes::new(rows.div_ceil(ROWS).checked_mul(group)?)?;
        Some(Self { dtype, rows, columns, data })
    }

    /// Groups of sixteen rows.
    pub fn groups(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Bytes of a group.
    pub fn group_bytes(&self) -> usize {
        self.data.len() / self.groups().max(1)
    }

    /// The first byte of a group's tiles.
    pub fn group(&self, group: usize) -> *const u8 {
        debug_assert!(group < self.groups());
        self.data.as_ptr().wrapping_add(group * self.group_bytes())
    }

    /// Fills `groups` from the matrix as the file holds it, row after row.
    ///
    /// # Safety
    /// No two calls at the same time fill the same group, and none of these groups is read meanwhile.
    pub unsafe fn fill(&self, file: &[u8], groups: Range<usize>) {
        let row_bytes = self.group_bytes() / ROWS;
        for group in groups {
            let first = group * ROWS;
            let rows = first..self.rows.min(first + ROWS);
            // SAFETY: the group lies in `data`, and the caller keeps others from it.
            let out = unsafe { slice::from_raw_parts_mut(self.group(group).cast_mut(), self.group_bytes()) };
            let rows = &file[rows.start * row_bytes..rows.end * row_bytes];
            // SAFETY: this visitor asks nothing of its caller.
            unsafe { quant::visit_tile(self.dtype, Interleave { rows, row_bytes, out }) };
        }
    }

    /// Copies one row's blocks, as the file has them, to `out`.
    pub fn read_row(&self, row: usize, out: &mut [u8]) {
        let group = row / ROWS * self.group_bytes();
        let tiles = &self.data.as_slice()[group..group + self.group_bytes()];
        let (block_bytes, row) = (self.dtype.block_bytes(), row % ROWS);
        for (tile, block) in tiles.chunks_exact(ROWS * block_bytes).zip(out.chunks_exact_mut(block_bytes)) {
            let mut at = 0;
            for &field in quant::format(self.dtype).fields {
                let size = field.min(4);
                let pieces = block[at..at + field].chunks_exact_mut(size);
                for (piece, line) in pieces.zip(tile[ROWS * at..].chunks_exact(ROWS * size)) {
                    piece.copy_from_slice(&line[row * size..][..size]);
                }
                at += field;
            }
        }
    }
}

/// Interleaves up to sixteen rows of `row_bytes` each into tiles.
struct Interleave<'a> {
    rows: &'a [u8],
    row_bytes: usize,
    out: &'a mut [u8],
}

impl TileVisitor for Interleave<'_> {
    type Output = ();

    unsafe fn visit<T: Tile>(self) {
        // Row after row, a stretch at a time whose tiles stay in the nearest cache until their lines are full.
        let stretch = (512 / T::BYTES).max(1) * T::BYTES;
        for (index, tiles) in self.out.chunks_mut(ROWS * stretch).enumerate() {
            for (row, bytes) in self.rows.chunks_exact(self.row_bytes).take(ROWS).enumerate() {
                let blocks = bytes[index * stretch..].chunks_exact(T::BYTES);
                for (block, tile) in blocks.zip(tiles.chunks_exact_mut(ROWS * T::BYTES)) {
                    interleave_block::<T>(row, block, tile);
                }
            }
        }
    }
}

/// Copies one row's block to where its tile has the pieces.
#[inline(always)]
fn interleave_block<T: Tile>(row: usize, block: &[u8], tile: &mut [u8]) {
    let mut at = 0;
    for &field in T::FIELDS {
        let (from, to) = (&block[at..at + field], &mut tile[ROWS * at..ROWS * (at + field)]);
        match field {
            1 => interleave_field::<1>(row, from, to),
            2 => interleave_field::<2>(row, from, to),
            _ => interleave_field::<4>(row, from, to),
        }
        at += field;
    }
}

/// Copies one row's field, in pieces of `N` bytes.
#[inline(always)]
fn interleave_field<const N: usize>(row: usize, field: &[u8], tile: &mut [u8]) {
    for (piece, line) in field.as_chunks::<N>().0.iter().zip(tile.chunks_exact_mut(ROWS * N)) {
        line.as_chunks_mut::<N>().0[row] = *piece;
    }
}
