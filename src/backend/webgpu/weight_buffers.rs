//! Places weights on the device, as planes of units (`quant/planes.rs`), in a few large buffers.
//!
//! Ranges of the buffers are reserved for all weights first. Then the bytes are uploaded in chunks,
//! each repacked separately, so that the host never has a second copy of the weights. Several
//! threads upload, so that reading, repacking and copying overlap.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::{
    context::{Context, Traits},
    parallel,
};
use crate::{
    DType, Error, Result,
    backend::LoadProgress,
    quant::{self, Planes, UNIT},
    weights::{TensorSlice, Weight},
};

/// Bytes of weights in a chunk.
const CHUNK: usize = 8 << 20;
/// Largest number of threads that upload. Each has one chunk in repacked and in staging memory.
const UPLOAD_THREADS: usize = 12;
/// Largest number of planes in a format.
const MAX_PLANES: usize = 4;

/// A range of one of the buffers, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferRange {
    pub buffer: usize,
    pub offset: u64,
    pub size: u64,
}

/// Consecutive rows of a matrix that fit one binding.
#[derive(Clone, Debug)]
pub(super) struct MatrixPart {
    /// The range of the planes.
    pub range: BufferRange,
    /// The index in the matrix of the first row.
    pub first_row: usize,
    pub rows: usize,
    /// The first word, in the range, of each plane, and of the table if the format has one.
    pub plane_offsets: Vec<u32>,
}

/// A matrix on the device.
#[derive(Debug)]
pub(super) struct GpuMatrix {
    pub dtype: DType,
    pub rows: usize,
    /// Units of 32 columns in a row, the last padded with zeros.
    pub units: usize,
    /// The parts in the order of their rows.
    pub parts: Vec<MatrixPart>,
}

impl GpuMatrix {
    pub fn planes(&self) -> &'static Planes {
        &quant::format(self.dtype).planes
    }

    /// Returns the bytes of each plane of `rows` rows.
    fn plane_bytes(&self, rows: usize) -> impl Iterator<Item = usize> {
        let planes = self.planes();
        let blocks = rows * self.units / planes.units;
        planes.bytes.iter().map(move |bytes| blocks * bytes)
    }

    /// Returns whether the format has a table that decoders look up.
    pub fn has_table(&self) -> bool {
        !self.planes().table.is_empty()
    }

    /// Uploads the table that the decoder of a part looks up, if the format has one.
    fn upload_table(&self, context: &Context, buffers: &[wgpu::Buffer], part: &MatrixPart) {
        let Planes { bytes, table, .. } = self.planes();
        if let Some(first) = part.plane_offsets.get(bytes.len()) {
            let offset = part.range.offset + u64::from(*first) * 4;
            context.queue.write_buffer(&buffers[part.range.buffer], offset, bytemuck::cast_slice(table));
        }
    }
}

/// The buffers of all weights.
pub(super) struct WeightBuffers {
    pub buffers: Vec<wgpu::Buffer>,
    /// Number of buffers at the start that belong to another executable.
    shared: usize,
    sizes: Vec<u64>,
    matrices: HashMap<TensorSlice, Arc<GpuMatrix>>,
    vectors: Vec<(Arc<[f32]>, BufferRange)>,
}

impl WeightBuffers {
    pub fn new() -> Self {
        Self { buffers: vec![], shared: 0, sizes: vec![], matrices: HashMap::new(), vectors: vec![] }
    }

    /// Returns buffers that share these, for the weights of another graph over the same file.
    pub fn beside(&self) -> Self {
        let Self { buffers, sizes, matrices, vectors, .. } = self;
        Self {
            buffers: buffers.clone(),
            shared: buffers.len(),
            sizes: sizes.clone(),
            matrices: matrices.clone(),
            vectors: vectors.clone(),
        }
    }

    /// Returns the bytes of the executable's own buffers.
    pub fn bytes(&self) -> u64 {
        self.sizes[self.shared..].iter().sum()
    }

    pub fn matrix(&self, slice: &TensorSlice) -> Option<&Arc<GpuMatrix>> {
        self.matrices.get(slice)
    }

    /// Reserves a place for a matrix.
    ///
    /// # Errors
    /// [`Error::Tensor`] if a row of it is larger than a binding.
    pub fn place_matrix(&mut self, traits: &Traits, weight: &Weight<'_>, rows: usize, columns: usize) -> Result<()> {
        let units = columns.div_ceil(UNIT);
        let mut matrix = GpuMatrix { dtype: weight.dtype, rows, units, parts: vec![] };
        let limit = traits.binding_bytes as usize;
        let row_bytes: usize = matrix.plane_bytes(1).sum::<usize>() + 1;
        // A multiple of 64 rows, so that each plane of a part starts at a word.
        let table_bytes = 4 * matrix.planes().table.len();
        let most = (limit.saturating_sub(64 * 16 + table_bytes) / row_bytes).min(rows.max(1));
        let most = if most < rows { most / 64 * 64 } else { most };
        if most == 0 {
            return Err(Error::tensor(&weight.slice, format!("has rows of {row_bytes} bytes, {limit} fit a binding")));
        }
        for first_row in (0..rows).step_by(most) {
            let rows = most.min(rows - first_row);
            let mut plane_offsets = vec![];
            let mut size = 0;
            for bytes in matrix.plane_bytes(rows) {
                plane_offsets.push((size / 4) as u32);
                size += bytes.next_multiple_of(16);
            }
            let table = matrix.planes().table;
            if !table.is_empty() {
                plane_offsets.push((size / 4) as u32);
                size += (4 * table.len()).next_multiple_of(16);
            }
            let range = self.reserve(traits, size as u64);
            matrix.parts.push(MatrixPart { range, first_row, rows, plane_offsets });
        }
        self.matrices.insert(weight.slice.clone(), Arc::new(matrix));
        Ok(())
    }

    /// Returns the place of a vector, which is reserved at its first use.
    pub fn place_vector(&mut self, traits: &Traits, row: Arc<[f32]>) -> BufferRange {
        if let Some((_, range)) = self.vectors.iter().find(|(known, _)| *known == row) {
            return *range;
        }
        let range = self.reserve(traits, (row.len() * 4).next_multiple_of(128) as u64);
        self.vectors.push((row, range));
        range
    }

    /// Reserves a range at the end of the last buffer, or in a new one if that buffer is full.
    fn reserve(&mut self, traits: &Traits, size: u64) -> BufferRange {
        let max_bytes = traits.binding_bytes.min(traits.buffer_bytes);
        let aligned = |end: u64| end.next_multiple_of(traits.alignment);
        let last = self.sizes.len().saturating_sub(1);
        match self.sizes[self.shared..].last_mut().filter(|end| aligned(**end) + size <= max_bytes) {
            Some(end) => {
                let offset = aligned(*end);
                *end = offset + size;
                BufferRange { buffer: last, offset, size }
            }
            None => {
                self.sizes.push(size);
                BufferRange { buffer: self.sizes.len() - 1, offset: 0, size }
            }
        }
    }

    /// Allocates the buffers after all places are reserved, and uploads the vectors.
    pub fn allocate(&mut self, context: &Context) -> Result<()> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        for size in &self.sizes[self.shared..] {
            self.buffers.push(context.buffer("weights", *size, usage)?);
        }
        for (row, range) in self.vectors.iter().filter(|(_, range)| range.buffer >= self.shared) {
            context.queue.write_buffer(&self.buffers[range.buffer], range.offset, bytemuck::cast_slice(row));
        }
        Ok(())
    }

    /// Uploads matrices.
    pub fn upload(&self, context: &Context, weights: &[Weight<'_>], progress: &LoadProgress<'_>) -> Result<()> {
        let mut chunks = vec![];
        for weight in weights {
            let Some(matrix) = self.matrices.get(&weight.slice) else { continue };
            let row_bytes = weight.byte_len() / matrix.rows.max(1);
            // A multiple of 64 rows, so that each plane of a chunk is whole words.
            let most = (CHUNK / row_bytes.max(1) / 64 * 64).max(64);
            for part in &matrix.parts {
                matrix.upload_table(context, &self.buffers, part);
                let starts = (0..part.rows).step_by(most);
                chunks.extend(starts.map(|first| (weight, matrix, part, first..part.rows.min(first + most))));
            }
        }
        let count = |bytes| {
            progress.add(bytes);
            progress.report();
        };
        let upload = |(weight, matrix, part, rows): (_, &Arc<_>, _, _)| match progress.is_cancelled() {
            true => Err(Error::Cancelled),
            false => self.upload_chunk(context, weight, matrix, part, rows),
        };
        let uploaded = parallel::for_each(chunks, UPLOAD_THREADS, upload, count);
        progress.check().and(uploaded)
    }

    /// Uploads the rows `rows` of a part, waits until the device has them, and returns the number
    /// of their bytes.
    fn upload_chunk(
        &self,
        context: &Context,
        weight: &Weight<'_>,
        matrix: &GpuMatrix,
        part: &MatrixPart,
        rows: Range<usize>,
    ) -> Result<usize> {
        let row_bytes = weight.byte_len() / matrix.rows.max(1);
        let range = (part.first_row + rows.start) * row_bytes..(part.first_row + rows.end) * row_bytes;
        weight.will_need(range.clone());
        self.upload_rows(context, matrix, part, rows, &weight.read(range.clone())?);
        weight.done_with(range.clone());
        context.wait_for(context.queue.submit([]))?;
        Ok(range.len())
    }

    /// Uploads the rows `rows` of a part, whose blocks are `bytes`.
    fn upload_rows(&self, context: &Context, matrix: &GpuMatrix, part: &MatrixPart, rows: Range<usize>, bytes: &[u8]) {
        let mut planes: Vec<Vec<u8>> =
            matrix.plane_bytes(rows.len()).map(|bytes| vec![0; bytes.next_multiple_of(4)]).collect();
        split_rows(matrix.planes(), bytes, bytes.len() / rows.len().max(1), matrix.units, &mut planes);
        let before: Vec<usize> = matrix.plane_bytes(rows.start).collect();
        for ((plane, plane_offset), before) in planes.iter().zip(&part.plane_offsets).zip(before) {
            let offset = part.range.offset + u64::from(*plane_offset) * 4 + before as u64;
            context.queue.write_buffer(&self.buffers[part.range.buffer], offset, plane);
        }
    }
}

/// Splits rows of blocks into planes. A row has `units` units.
fn split_rows(planes: &Planes, rows: &[u8], row_bytes: usize, units: usize, out: &mut [Vec<u8>]) {
    let block_bytes = if planes.coded() { row_bytes * planes.units / units } else { planes.bytes[0] };
    let mut out: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
    // A row of floats may end within a unit, which is then padded with zeros.
    let mut padded = vec![0; block_bytes];
    for row in rows.chunks_exact(row_bytes) {
        for block in row.chunks(block_bytes) {
            let mut fields: [&mut [u8]; MAX_PLANES] = Default::default();
            for ((field, plane), bytes) in fields.iter_mut().zip(&mut out).zip(planes.bytes) {
                (*field, *plane) = std::mem::take(plane).split_at_mut(*bytes);
            }
            if block.len() == block_bytes {
                (planes.split)(block, &mut fields);
            } else {
                padded[..block.len()].copy_from_slice(block);
                padded[block.len()..].fill(0);
                (planes.split)(&padded, &mut fields);
            }
        }
    }
}
