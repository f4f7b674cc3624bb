//! A block-quantised matrix in the order that the kernels read: sixteen rows interleaved, the file's bytes otherwise.
//!
//! See [`crate::quant::Tile`] for the order within a tile. Tiles of the same sixteen rows follow one another, and
//! groups of sixteen rows follow those; a last group that is not full is filled up with zero bytes.

use std::{alloc, ops::Range, ptr::NonNull, slice};

use crate::{
    DType,
    quant::{self, ROWS},
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
    /// Room for such a matrix; `None` where memory is out or the sizes overflow.
    pub fn new(dtype: DType, rows: usize, columns: usize) -> Option<Self> {
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
            interleave(self.dtype, &file[rows.start * row_bytes..rows.end * row_bytes], row_bytes, out);
        }
    }

    /// Copies one row's blocks, as the file has them, to `out`.
    pub fn read_row(&self, row: usize, out: &mut [u8]) {
        let group = row / ROWS * self.group_bytes();
        let tiles = &self.data.as_slice()[group..group + self.group_bytes()];
        let (block_bytes, row) = (self.dtype.block_bytes(), row % ROWS);
        for (tile, block) in tiles.chunks_exact(ROWS * block_bytes).zip(out.chunks_exact_mut(block_bytes)) {
            for_each_piece(self.dtype, |at, size| {
                block[at..at + size].copy_from_slice(&tile[ROWS * at + row * size..][..size]);
            });
        }
    }
}

/// Calls `f` with the place and size of each piece of a block that is interleaved as a whole.
#[inline(always)]
fn for_each_piece(dtype: DType, mut f: impl FnMut(usize, usize)) {
    let mut at = 0;
    for &field in quant::format(dtype).fields {
        let size = field.min(4);
        for _ in 0..field / size {
            f(at, size);
            at += size;
        }
    }
}

/// Interleaves up to sixteen rows of `row_bytes` each into tiles.
fn interleave(dtype: DType, rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    let block_bytes = dtype.block_bytes();
    for (index, tile) in out.chunks_exact_mut(ROWS * block_bytes).enumerate() {
        for (row, bytes) in rows.chunks_exact(row_bytes).enumerate() {
            let block = &bytes[index * block_bytes..][..block_bytes];
            for_each_piece(dtype, |at, size| {
                let to = ROWS * at + row * size;
                match size {
                    4 => tile[to..to + 4].copy_from_slice(&block[at..at + 4]),
                    _ => tile[to..to + size].copy_from_slice(&block[at..at + size]),
                }
            });
        }
    }
}
