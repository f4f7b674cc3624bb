//! Where weights lie on the device: as planes of units (`quant/planes.rs`), in a few large buffers.
//!
//! Places are given out first, for all weights; then the bytes go up in chunks, each repacked into the staging memory
//! of the moment, so that the host never holds a second copy.

use std::{collections::HashMap, sync::Arc, thread};

use super::context::{Context, Traits};
use crate::{
    DType, Error, Result,
    backend::LoadProgress,
    quant::{self, Planes, UNIT},
    weights::{TensorSlice, Weight},
};

/// Bytes that are repacked at a time.
const CHUNK: usize = 16 << 20;
/// Chunks after which the device is let catch up.
const CHUNKS_A_SUBMISSION: usize = 8;
/// No format has more planes.
const MAX_PLANES: usize = 4;

/// A range of one of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferRange {
    pub buffer: usize,
    pub offset: u64,
    pub size: u64,
}

/// Consecutive rows of a matrix, as many as a binding holds.
#[derive(Clone, Debug)]
pub(super) struct MatrixPart {
    /// Where the planes lie.
    pub range: BufferRange,
    /// The first row, in the matrix.
    pub first_row: usize,
    /// Rows.
    pub rows: usize,
    /// The first word of each plane.
    pub at: Vec<u32>,
}

/// A matrix on the device.
#[derive(Debug)]
pub(super) struct GpuMatrix {
    pub dtype: DType,
    pub rows: usize,
    /// Units of 32 columns in a row, the last filled up with zeros.
    pub units: usize,
    /// All rows, in order.
    pub parts: Vec<MatrixPart>,
}

impl GpuMatrix {
    pub fn planes(&self) -> &'static Planes {
        &quant::format(self.dtype).planes
    }

    /// Bytes of each plane for so many rows.
    fn plane_bytes(&self, rows: usize) -> impl Iterator<Item = usize> {
        let planes = self.planes();
        let blocks = rows * self.units / planes.units;
        planes.bytes.iter().map(move |bytes| blocks * bytes)
    }
}

/// The buffers of all weights.
pub(super) struct WeightBuffers {
    pub buffers: Vec<wgpu::Buffer>,
    sizes: Vec<u64>,
    matrices: HashMap<TensorSlice, Arc<GpuMatrix>>,
    vectors: Vec<(Arc<[f32]>, BufferRange)>,
}

impl WeightBuffers {
    pub fn new() -> Self {
        Self { buffers: vec![], sizes: vec![], matrices: HashMap::new(), vectors: vec![] }
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    pub fn matrix(&self, slice: &TensorSlice) -> Option<&Arc<GpuMatrix>> {
        self.matrices.get(slice)
    }

    /// Gives a matrix its place.
    pub fn place(&mut self, traits: &Traits, weight: &Weight<'_>, [rows, columns]: [usize; 2]) -> Result<()> {
        let units = columns.div_ceil(UNIT);
        let mut matrix = GpuMatrix { dtype: weight.dtype, rows, units, parts: vec![] };
        let limit = traits.binding_bytes as usize;
        let row_bytes: usize = matrix.plane_bytes(1).sum::<usize>() + 1;
        // Whole blocks of 64 rows, so that no plane's part begins within a word.
        let most = (limit.saturating_sub(64 * 16) / row_bytes).min(rows.max(1));
        let most = if most < rows { most / 64 * 64 } else { most };
        if most == 0 {
            return Err(Error::tensor(&weight.slice, format!("has rows of {row_bytes} bytes, {limit} fit a binding")));
        }
        for first_row in (0..rows).step_by(most) {
            let rows = most.min(rows - first_row);
            let mut at = vec![];
            let mut size = 0;
            for bytes in matrix.plane_bytes(rows) {
                at.push((size / 4) as u32);
                size += bytes.next_multiple_of(16);
            }
            let range = self.take(traits, size as u64);
            matrix.parts.push(MatrixPart { range, first_row, rows, at });
        }
        self.matrices.insert(weight.slice.clone(), Arc::new(matrix));
        Ok(())
    }

    /// Gives a row of numbers its place, unless it has one.
    pub fn place_vector(&mut self, traits: &Traits, row: Arc<[f32]>) -> BufferRange {
        if let Some((_, range)) = self.vectors.iter().find(|(known, _)| *known == row) {
            return *range;
        }
        let range = self.take(traits, (row.len() * 4).next_multiple_of(128) as u64);
        self.vectors.push((row, range));
        range
    }

    fn take(&mut self, traits: &Traits, size: u64) -> BufferRange {
        let room = traits.binding_bytes.min(traits.buffer_bytes);
        let aligned = |end: u64| end.next_multiple_of(traits.alignment);
        match self.sizes.last_mut().filter(|end| aligned(**end) + size <= room) {
            Some(end) => {
                let offset = aligned(*end);
                *end = offset + size;
                BufferRange { buffer: self.sizes.len() - 1, offset, size }
            }
            None => {
                self.sizes.push(size);
                BufferRange { buffer: self.sizes.len() - 1, offset: 0, size }
            }
        }
    }

    /// Makes the buffers, once everything has its place.
    pub fn allocate(&mut self, context: &Context) -> Result<()> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        for size in &self.sizes {
            self.buffers.push(context.buffer("weights", *size, usage)?);
        }
        for (row, range) in &self.vectors {
            context.queue.write_buffer(&self.buffers[range.buffer], range.offset, bytemuck::cast_slice(row));
        }
        Ok(())
    }

    /// Takes a matrix up to the device.
    pub fn upload(
        &self,
        context: &Context,
        weight: &Weight<'_>,
        chunks: &mut usize,
        progress: &LoadProgress<'_>,
    ) -> Result<()> {
        let Some(matrix) = self.matrices.get(&weight.slice) else { return Ok(()) };
        let row_bytes = weight.byte_len() / matrix.rows.max(1);
        // A multiple of 64 rows, so that each plane's part is whole words.
        let rows_a_chunk = (CHUNK / row_bytes.max(1) / 64 * 64).max(64);
        for part in &matrix.parts {
            for first in (0..part.rows).step_by(rows_a_chunk) {
                let rows = rows_a_chunk.min(part.rows - first);
                let from = (part.first_row + first) * row_bytes;
                let range = from..from + rows * row_bytes;
                weight.will_need(range.clone());
                self.upload_rows(context, matrix, part, first, &weight.read(range.clone())?, rows);
                progress.add(range.len());
                weight.done_with(range);
                progress.report();
                progress.check()?;
                *chunks += 1;
                if chunks.is_multiple_of(CHUNKS_A_SUBMISSION) {
                    context.queue.submit([]);
                    context.wait()?;
                }
            }
        }
        Ok(())
    }

    fn upload_rows(
        &self,
        context: &Context,
        matrix: &GpuMatrix,
        part: &MatrixPart,
        first: usize,
        rows_of: &[u8],
        rows: usize,
    ) {
        let mut planes: Vec<Vec<u8>> =
            matrix.plane_bytes(rows).map(|bytes| vec![0; bytes.next_multiple_of(4)]).collect();
        split_rows(matrix, rows_of, rows, &mut planes);
        let before: Vec<usize> = matrix.plane_bytes(first).collect();
        for ((plane, at), before) in planes.iter().zip(&part.at).zip(before) {
            let offset = part.range.offset + u64::from(*at) * 4 + before as u64;
            context.queue.write_buffer(&self.buffers[part.range.buffer], offset, plane);
        }
    }
}

/// Takes rows apart into planes, on several threads.
fn split_rows(matrix: &GpuMatrix, bytes: &[u8], rows: usize, parts: &mut [Vec<u8>]) {
    let planes = matrix.planes();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(rows.div_ceil(64)).max(1);
    let share = rows.div_ceil(threads);
    let row_bytes = bytes.len() / rows.max(1);
    let blocks_a_row = matrix.units / planes.units;
    let mut rest: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
    thread::scope(|scope| {
        for rows_of in bytes.chunks(share * row_bytes) {
            let blocks = rows_of.len() / row_bytes * blocks_a_row;
            let mut mine = vec![];
            for (rest, bytes) in rest.iter_mut().zip(planes.bytes) {
                let (head, tail) = std::mem::take(rest).split_at_mut(blocks * bytes);
                mine.push(head);
                *rest = tail;
            }
            scope.spawn(move || split_share(planes, rows_of, row_bytes, blocks_a_row, mine));
        }
    });
}

fn split_share(planes: &Planes, rows_of: &[u8], row_bytes: usize, blocks_a_row: usize, mut parts: Vec<&mut [u8]>) {
    let block_bytes = if planes.coded { row_bytes / blocks_a_row } else { planes.bytes[0] };
    // A row of floats may end within a unit, which zeros fill up.
    let mut filled = vec![0; block_bytes];
    for row in rows_of.chunks_exact(row_bytes) {
        for block in row.chunks(block_bytes) {
            let mut own: [&mut [u8]; MAX_PLANES] = Default::default();
            for ((own, part), bytes) in own.iter_mut().zip(&mut parts).zip(planes.bytes) {
                (*own, *part) = std::mem::take(part).split_at_mut(*bytes);
            }
            if block.len() == block_bytes {
                (planes.split)(block, &mut own);
            } else {
                filled[..block.len()].copy_from_slice(block);
                filled[block.len()..].fill(0);
                (planes.split)(&filled, &mut own);
            }
        }
    }
}
