//! A block-quantised matrix in the order that the kernels read: sixteen rows interleaved, the file's bytes otherwise.
//!
//! See [`crate::quant::Tile`] for the order within a tile. Tiles of the same sixteen rows follow one another, and
//! groups of sixteen rows follow those; a last group that is not full is filled up with zero bytes.

use std::{ops::Range, slice, sync::Arc};

use super::aligned::AlignedBytes;
use crate::{
    DType,
    quant::{self, ROWS, Tile, TileVisitor},
};

/// A matrix `[rows, columns]` in tiles.
pub(super) struct Packed {
    pub dtype: DType,
    pub rows: usize,
    pub columns: usize,
    group_bytes: usize,
    /// Shared with other matrices.
    memory: Arc<AlignedBytes>,
    /// The first byte in it.
    start: usize,
}

impl Packed {
    /// The bytes of such a matrix; `None` for plain floats, which have no tiles, and where the sizes overflow.
    pub fn bytes(dtype: DType, [rows, columns]: [usize; 2]) -> Option<usize> {
        if dtype.is_float() {
            return None;
        }
        rows.div_ceil(ROWS).checked_mul(dtype.row_bytes(columns)?.checked_mul(ROWS)?)
    }

    /// Such a matrix in the zeroed `memory` from byte `start` on, a multiple of [`AlignedBytes::ALIGN`]; `None` where
    /// it has no room there.
    pub fn new(dtype: DType, shape: [usize; 2], memory: &Arc<AlignedBytes>, start: usize) -> Option<Self> {
        let [rows, columns] = shape;
        let bytes = Self::bytes(dtype, shape)?;
        if start.checked_add(bytes)? > memory.len() {
            return None;
        }
        let group_bytes = bytes / rows.div_ceil(ROWS).max(1);
        Some(Self { dtype, rows, columns, group_bytes, memory: memory.clone(), start })
    }

    /// Groups of sixteen rows.
    pub fn groups(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Bytes of a group.
    pub fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    /// Where its bytes lie in the memory that it shares.
    pub fn place(&self) -> Range<usize> {
        self.start..self.start + self.groups() * self.group_bytes
    }

    /// The first byte of a group's tiles.
    pub fn group(&self, group: usize) -> *const u8 {
        debug_assert!(group < self.groups());
        self.memory.as_ptr().wrapping_add(self.start + group * self.group_bytes)
    }

    /// Fills `groups` from the matrix as the file holds it, row after row.
    ///
    /// # Safety
    /// No two calls at the same time fill the same group, and none of these groups is read meanwhile.
    pub unsafe fn fill(&self, file: &[u8], groups: Range<usize>) {
        let row_bytes = self.group_bytes / ROWS;
        for group in groups {
            let first = group * ROWS;
            let rows = first..self.rows.min(first + ROWS);
            // SAFETY: the group lies in `memory`, where no two matrices overlap, and the caller keeps others from it.
            let out = unsafe { slice::from_raw_parts_mut(self.group(group).cast_mut(), self.group_bytes) };
            let rows = &file[rows.start * row_bytes..rows.end * row_bytes];
            // SAFETY: this visitor asks nothing of its caller.
            unsafe { quant::visit_tile(self.dtype, Interleave { rows, row_bytes, out }) };
        }
    }

    /// Copies one row's blocks, as the file has them, to `out`.
    pub fn read_row(&self, row: usize, out: &mut [u8]) {
        let group = self.start + row / ROWS * self.group_bytes;
        let tiles = &self.memory.as_slice()[group..group + self.group_bytes];
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
