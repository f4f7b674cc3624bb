//! Stores quantized matrices in the order that the kernels read: the file's bytes, with sixteen
//! rows interleaved.
//!
//! [`crate::quant::Tile`] documents the order within a tile. The tiles of a group of sixteen rows
//! follow one another, and groups follow groups. A partial group is padded with zero bytes.

use std::{ops::Range, slice, sync::Arc};

use super::stack::{GroupRow, Stack};
use crate::{
    DType,
    backend::cpu::memory::aligned::AlignedBytes,
    quant::{self, ROWS, Tile, TileVisitor},
};

/// Stacked matrices in tiles.
pub(crate) struct PackedMatrix {
    pub dtype: DType,
    pub stack: Stack,
    group_bytes: usize,
    /// The memory of all packed matrices of a plan.
    memory: Arc<AlignedBytes>,
    /// The offset of the first byte in `memory`.
    start: usize,
}

impl PackedMatrix {
    /// Returns the bytes of stacked matrices; `None` for floats, which have no tiles, and on
    /// overflow.
    pub fn byte_len(dtype: DType, stack: Stack) -> Option<usize> {
        if dtype.is_float() {
            return None;
        }
        let groups = stack.count.checked_mul(stack.groups_per_matrix())?;
        groups.checked_mul(dtype.row_bytes(stack.columns)?.checked_mul(ROWS)?)
    }

    /// Places matrices into the zeroed `memory` from byte `start` on, a multiple of
    /// [`AlignedBytes::ALIGN`]. Returns `None` if they do not fit.
    pub fn new(dtype: DType, stack: Stack, memory: &Arc<AlignedBytes>, start: usize) -> Option<Self> {
        let bytes = Self::byte_len(dtype, stack)?;
        if start.checked_add(bytes)? > memory.len() {
            return None;
        }
        let group_bytes = bytes / stack.groups().max(1);
        Some(Self { dtype, stack, group_bytes, memory: memory.clone(), start })
    }

    /// Returns the bytes of a group of sixteen rows.
    pub fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    /// Returns the range of the matrices' bytes in the shared memory.
    pub fn byte_range(&self) -> Range<usize> {
        self.start..self.start + self.stack.groups() * self.group_bytes
    }

    /// Returns the first byte of a group's tiles.
    pub fn group(&self, group: usize) -> *const u8 {
        debug_assert!(group < self.stack.groups());
        self.memory.as_ptr().wrapping_add(self.start + group * self.group_bytes)
    }

    /// Fills a group from its `rows`, the blocks of one row after the other as in the file.
    ///
    /// # Safety
    /// No other thread reads or writes the group at the same time.
    pub unsafe fn fill(&self, group: usize, rows: &[u8]) {
        // SAFETY: the group lies in `memory`, where matrices do not overlap; by the caller, no
        // other thread uses it.
        let out = unsafe { slice::from_raw_parts_mut(self.group(group).cast_mut(), self.group_bytes) };
        // SAFETY: this visitor has no requirements.
        unsafe { quant::visit_tile(self.dtype, InterleaveTiles { rows, row_bytes: self.group_bytes / ROWS, out }) };
    }

    /// Copies the blocks of a row to `out` as the file has them.
    pub fn read_row(&self, row: usize, out: &mut [u8]) {
        self.read_group_row(self.stack.locate(row), out);
    }

    /// Copies the blocks of a row of a group to `out`; rows past the matrix are zero bytes.
    pub fn read_group_row(&self, GroupRow { group, row }: GroupRow, out: &mut [u8]) {
        let start = self.start + group * self.group_bytes;
        let tiles = &self.memory.as_slice()[start..start + self.group_bytes];
        let block_bytes = self.dtype.block_bytes();
        for (tile, block) in tiles.chunks_exact(ROWS * block_bytes).zip(out.chunks_exact_mut(block_bytes)) {
            let mut offset = 0;
            for &field in quant::format(self.dtype).fields {
                let size = field.min(4);
                let words = block[offset..offset + field].chunks_exact_mut(size);
                for (word, line) in words.zip(tile[ROWS * offset..].chunks_exact(ROWS * size)) {
                    word.copy_from_slice(&line[row * size..][..size]);
                }
                offset += field;
            }
        }
    }
}

/// Interleaves up to sixteen rows of `row_bytes` bytes each into tiles.
struct InterleaveTiles<'a> {
    rows: &'a [u8],
    row_bytes: usize,
    out: &'a mut [u8],
}

impl TileVisitor for InterleaveTiles<'_> {
    type Output = ();

    /// # Safety: none; every access is checked.
    unsafe fn visit<T: Tile>(self) {
        // Row by row over a stretch of each, so short that its tiles stay in the first-level cache.
        let stretch_bytes = (512 / T::BYTES).max(1) * T::BYTES;
        for (index, tiles) in self.out.chunks_mut(ROWS * stretch_bytes).enumerate() {
            for (row, bytes) in self.rows.chunks_exact(self.row_bytes).take(ROWS).enumerate() {
                let blocks = bytes[index * stretch_bytes..].chunks_exact(T::BYTES);
                for (block, tile) in blocks.zip(tiles.chunks_exact_mut(ROWS * T::BYTES)) {
                    interleave_block::<T>(row, block, tile);
                }
            }
        }
    }
}

/// Copies the block of a row to its places in the tile.
#[inline(always)]
fn interleave_block<T: Tile>(row: usize, block: &[u8], tile: &mut [u8]) {
    let mut offset = 0;
    for &field in T::FIELDS {
        let end = offset + field;
        let (from, to) = (&block[offset..end], &mut tile[ROWS * offset..ROWS * end]);
        match field {
            1 => interleave_field::<1>(row, from, to),
            2 => interleave_field::<2>(row, from, to),
            _ => interleave_field::<4>(row, from, to),
        }
        offset = end;
    }
}

/// Copies a field of a row, `N` bytes at a time.
#[inline(always)]
fn interleave_field<const N: usize>(row: usize, field: &[u8], tile: &mut [u8]) {
    for (word, line) in field.as_chunks::<N>().0.iter().zip(tile.chunks_exact_mut(ROWS * N)) {
        line.as_chunks_mut::<N>().0[row] = *word;
    }
}
