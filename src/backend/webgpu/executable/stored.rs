//! Reads and writes pages and states between steps, through a buffer that the host maps.
//!
//! The buffers of layers and recurrent ops have the stored order of elements.

use super::{
    super::{
        context::Context,
        kernel::Resource,
        program::{Buffers, map_buffer, read_buffer},
    },
    GpuExecutable,
};
use crate::{
    Error, Result,
    backend::CacheAccess,
    kv_cache::{CacheLayout, CachePart, PageId},
};

/// The buffers through which parts go, each as large as the largest part so far.
#[derive(Default)]
pub(super) struct PartTransfer {
    read: Option<wgpu::Buffer>,
    write: Option<wgpu::Buffer>,
}

/// A range of a part that lies in one buffer.
struct Piece {
    resource: Resource,
    /// The offset in the buffer.
    offset: u64,
    bytes: u64,
}

impl PartTransfer {
    /// Reads the pieces of a part, one after the other, to `bytes`.
    fn read(&mut self, context: &Context, buffers: &Buffers, pieces: &[Piece], bytes: &mut [u8]) -> Result<()> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = sufficient(&mut self.read, context, bytes.len() as u64, usage)?;
        let mut encoder = context.device.create_command_encoder(&Default::default());
        let mut start = 0;
        for Piece { resource, offset, bytes } in pieces {
            encoder.copy_buffer_to_buffer(buffers.get(*resource)?, *offset, staging, start, *bytes);
            start += bytes;
        }
        context.queue.submit([encoder.finish()]);
        read_buffer(context, staging, start, |found| bytes.copy_from_slice(found))
    }

    /// Writes `bytes` to the pieces of a part, one after the other.
    fn write(&mut self, context: &Context, buffers: &Buffers, pieces: &[Piece], bytes: &[u8]) -> Result<()> {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        let staging = sufficient(&mut self.write, context, bytes.len() as u64, usage)?;
        let slice = staging.slice(..bytes.len() as u64);
        map_buffer(context, &slice, wgpu::MapMode::Write)?;
        let mut view = slice.get_mapped_range_mut().map_err(|error| context.error(error.to_string()))?;
        view.copy_from_slice(bytes);
        drop(view);
        staging.unmap();
        let mut encoder = context.device.create_command_encoder(&Default::default());
        let mut start = 0;
        for Piece { resource, offset, bytes } in pieces {
            encoder.copy_buffer_to_buffer(staging, start, buffers.get(*resource)?, *offset, *bytes);
            start += bytes;
        }
        context.queue.submit([encoder.finish()]);
        Ok(())
    }
}

/// Returns a buffer of at least `bytes` bytes.
fn sufficient<'a>(
    buffer: &'a mut Option<wgpu::Buffer>,
    context: &Context,
    bytes: u64,
    usage: wgpu::BufferUsages,
) -> Result<&'a wgpu::Buffer> {
    let sufficient = match buffer.take().filter(|buffer| buffer.size() >= bytes) {
        Some(buffer) => buffer,
        None => context.buffer("a part of the cache", bytes, usage)?,
    };
    Ok(buffer.insert(sufficient))
}

impl GpuExecutable {
    /// Returns the places of a part, which must have memory and `bytes` bytes.
    fn pieces(&self, part: CachePart, bytes: usize) -> Result<Vec<Piece>> {
        let Self { cache, pages, states, .. } = self;
        let (index, buffers) = match part {
            CachePart::Page(page) => (page.index(), pages.get(page.group())),
            CachePart::State(state) => (state.index(), Some(states)),
        };
        let places = buffers.map(|buffers| buffers.places(index)).unwrap_or_default();
        let pieces: Vec<_> =
            places.into_iter().map(|(resource, offset, bytes)| Piece { resource, offset, bytes }).collect();
        if cache.stored_bytes(part) != bytes || pieces.iter().map(|piece| piece.bytes).sum::<u64>() != bytes as u64 {
            return Err(Error::internal("a part of the cache has no memory or another size"));
        }
        Ok(pieces)
    }
}

impl CacheAccess for GpuExecutable {
    fn layout(&self) -> &CacheLayout {
        &self.cache
    }

    fn prepare(&mut self, copies: &[(PageId, PageId)], parts: &[CachePart]) -> Result<()> {
        let copied = copies.iter().flat_map(|(from, to)| [*from, *to]).map(CachePart::Page);
        let mut counts = vec![0; self.pages.len()];
        let mut states = 0;
        for part in copied.chain(parts.iter().copied()) {
            match part {
                CachePart::Page(page) => counts[page.group()] = counts[page.group()].max(page.index() + 1),
                CachePart::State(state) => states = states.max(state.index() + 1),
            }
        }
        self.grow_cache(&counts, states)?;
        self.copy_pages(copies)
    }

    fn read(&mut self, part: CachePart, bytes: &mut [u8]) -> Result<()> {
        let pieces = self.pieces(part, bytes.len())?;
        let Self { context, buffers, transfer, .. } = self;
        transfer.read(context, buffers, &pieces, bytes)
    }

    fn write(&mut self, part: CachePart, bytes: &[u8]) -> Result<()> {
        let pieces = self.pieces(part, bytes.len())?;
        let Self { context, buffers, transfer, .. } = self;
        transfer.write(context, buffers, &pieces, bytes)
    }
}
