//! The memory behind the cache's pages and the states of sequences: one buffer a layer or an op, which grows.

use super::{
    context::Context,
    kernel::Resource,
    program::{Buffers, STORAGE},
};
use crate::{
    Error, Result,
    kv_cache::{CacheLayout, PAGE_POSITIONS, PageId},
};

/// The pages that there is room for, in all layers; or the states, in all ops.
pub(super) struct Pages {
    page_bytes: Vec<u64>,
    resource: fn(usize) -> Resource,
    capacity: usize,
    /// Where a page is on its way: no copy may stay within a buffer.
    spare: Option<wgpu::Buffer>,
}

impl Pages {
    pub fn of_cache(cache: &CacheLayout) -> Self {
        let bytes = |layer: usize| 2 * cache.layers[layer].kv_heads * PAGE_POSITIONS * cache.row_bytes[layer];
        let page_bytes = (0..cache.layers.len()).map(|layer| bytes(layer) as u64).collect();
        Self { page_bytes, resource: Resource::Cache, capacity: 0, spare: None }
    }

    pub fn of_states(cache: &CacheLayout) -> Self {
        let page_bytes = cache.states.iter().map(|state| (4 * state.rows * state.width) as u64).collect();
        Self { page_bytes, resource: Resource::State, capacity: 0, spare: None }
    }

    /// The bytes of so many positions in each layer.
    pub fn bytes_of(&self, positions: usize) -> Vec<u64> {
        self.page_bytes.iter().map(|page| page / PAGE_POSITIONS as u64 * positions as u64).collect()
    }

    /// Whether there is no room for so many pages.
    pub fn must_grow(&self, count: usize) -> bool {
        count > self.capacity || self.capacity == 0
    }

    /// Makes room for so many pages, by half as many again as there were, in new buffers. Nothing may hold the old ones:
    /// each is given back before the next is made.
    pub fn grow(&mut self, context: &Context, buffers: &mut Buffers, count: usize) -> Result<()> {
        let capacity = count.max(self.capacity + self.capacity / 2).max(4);
        for (layer, page) in self.page_bytes.iter().enumerate() {
            let bytes = capacity as u64 * page;
            if bytes > context.traits.binding_bytes {
                let needed = count as u64 * page;
                if needed > context.traits.binding_bytes {
                    let device = context.name.clone();
                    return Err(Error::DeviceMemory { device, what: "one layer's cache".into(), needed });
                }
            }
            let bytes = bytes.min(context.traits.binding_bytes);
            let new = context.buffer("cache", bytes, STORAGE)?;
            if self.capacity > 0 {
                let mut encoder = context.device.create_command_encoder(&Default::default());
                let old = buffers.get((self.resource)(layer))?;
                encoder.copy_buffer_to_buffer(old, 0, &new, 0, self.capacity as u64 * page);
                context.queue.submit([encoder.finish()]);
                context.wait()?;
            }
            buffers.set((self.resource)(layer), new);
        }
        let fits = self.page_bytes.iter().map(|page| (context.traits.binding_bytes / page) as usize).min();
        self.capacity = capacity.min(fits.unwrap_or(capacity));
        Ok(())
    }

    /// Copies pages, one after the other: one copied to may be copied from next.
    pub fn copy(&mut self, context: &Context, buffers: &Buffers, copies: &[(PageId, PageId)]) -> Result<()> {
        let mut copies = copies.iter().filter(|(from, to)| from != to).peekable();
        if copies.peek().is_none() {
            return Ok(());
        }
        let spare = match self.spare.take() {
            Some(spare) => spare,
            None => {
                let largest = self.page_bytes.iter().max().copied().unwrap_or(0);
                context.buffer("a page on its way", largest, STORAGE)?
            }
        };
        let mut encoder = context.device.create_command_encoder(&Default::default());
        for (from, to) in copies {
            for (layer, page) in self.page_bytes.iter().enumerate() {
                let buffer = buffers.get((self.resource)(layer))?;
                let at = |id: PageId| id.index() as u64 * page;
                encoder.copy_buffer_to_buffer(buffer, at(*from), &spare, 0, *page);
                encoder.copy_buffer_to_buffer(&spare, 0, buffer, at(*to), *page);
            }
        }
        context.queue.submit([encoder.finish()]);
        self.spare = Some(spare);
        Ok(())
    }
}
