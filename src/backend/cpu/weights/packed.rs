//! A block-quantised matrix in the order that the kernels read: sixteen rows interleaved, the file's bytes otherwise.
//!
//! See [`crate::quant::Tile`] for the order within a tile. Tiles of the same sixteen rows follow one another, and
//! groups of sixteen rows follow those; the last group of a matrix is filled up with zero bytes where it is not full.

use std::{ops::Range, slice, sync::Arc};

use super::stack::Stack;
use crate::{
    DType,
    backend::cpu::memory::aligned::AlignedBytes,
    quant::{self, ROWS, Tile, TileVisitor},
};

/// Matrices in tiles.
pub(crate) struct Packed {
    pub dtype: DType,
    pub stack: Stack,
    group_bytes: usize,
    /// Shared with other matrices.
    memory: Arc<AlignedBytes>,
    /// The first byte in it.
    start: usize,
}

impl Packed {
    /// The bytes of such matrices; `None` for plain floats, which have no tiles, and where the sizes overflow.
    pub fn bytes(dtype: DType, stack: Stack) -> Option<usize> {
        if dtype.is_float() {
            return None;
        }
        let groups = stack.count.checked_mul(stack.groups_each())?;
        groups.checked_mul(dtype.row_bytes(stack.columns)?.checked_mul(ROWS)?)
    }

    /// Such matrices in the zeroed `memory` from byte `start` on, a multiple of [`AlignedBytes::ALIGN`]; `None` where
    /// they have no room there.
    pub fn new(dtype: DType, stack: Stack, memory: &Arc<AlignedBytes>, start: usize) -> Option<Self> {
        let bytes = Self::bytes(dtype, stack)?;
        if start.checked_add(bytes)? > memory.len() {
            return None;
        }
        let group_bytes = bytes / stack.groups().max(1);
        Some(Self { dtype, stack, group_bytes, memory: memory.clone(), start })
    }

    /// Bytes of a group.
    pub fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    /// Where their bytes lie in the memory that it shares.
    pub fn place(&self) -> Range<usize> {
        self.start..self.start + self.stack.groups() * self.group_bytes
    }

    /// The first byte of a group's tiles.
    pub fn group(&self, group: usize) -> *const u8 {
        debug_assert!(group < self.stack.groups());
        self.memory.as_ptr().wrapping_add(self.start + group * self.group_bytes)
    }

    /// Fills a group from its `rows` as the file holds them, one after the other.
    ///
    /// # Safety
    /// No two calls at the same time fill the same group, and it is not read meanwhile.
    pub unsafe fn fill(&self, group: usize, rows: &[u8]) {
        // SAFETY: the group lies in `memory`, where no two matrices overlap, and the caller keeps others from it.
        let out = unsafe { slice::from_raw_parts_mut(self.group(group).cast_mut(), self.group_bytes) };
        // SAFETY: this visitor asks nothing of its caller.
        unsafe { quant::visit_tile(self.dtype, Interleave { rows, row_bytes: self.group_bytes / ROWS, out }) };
    }

    /// Copies one row's blocks, as the file has them, to `out`.
    pub fn read_row(&self, row: usize, out: &mut [u8]) {
        self.read_lane(self.stack.locate(row), out);
    }

    /// As `read_row`, for a group and the row there.
    pub fn read_lane(&self, (group, row): (usize, usize), out: &mut [u8]) {
        let group = self.start + group * self.group_bytes;
        let tiles = &self.memory.as_slice()[group..group + self.group_bytes];
        let block_bytes = self.dtype.block_bytes();
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
