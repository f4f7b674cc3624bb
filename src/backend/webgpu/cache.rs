//! The memory behind the cache's pages and the states of sequences: one buffer a layer or an op, which grows.

use super::{
    context::Context,
    kernel::Resource,
    program::{Buffers, STORAGE},
};
use crate::{
    Error, Result,
    kv_cache::{CacheLayout, PAGE_POSITIONS},
};

/// The pages that there is room for, in all layers of a group; or the states, in all ops.
pub(super) struct Pages {
    /// Where each layer or op has them, and the bytes of one there.
    places: Vec<(Resource, u64)>,
    capacity: usize,
    /// Where a page is on its way: no copy may stay within a buffer.
    spare: Option<wgpu::Buffer>,
}

impl Pages {
    pub fn of_group(cache: &CacheLayout, group: usize) -> Self {
        let layers = cache.layers.iter().enumerate().filter(|(_, layer)| layer.group == group);
        let bytes = layers.map(|(number, layer)| (Resource::Cache(number), PAGE_POSITIONS * layer.position_bytes()));
        Self::new(bytes)
    }

    pub fn of_states(cache: &CacheLayout) -> Self {
        let states = cache.states.iter().enumerate();
        Self::new(states.map(|(number, state)| (Resource::State(number), 4 * state.rows * state.width)))
    }

    fn new(places: impl Iterator<Item = (Resource, usize)>) -> Self {
        let places = places.map(|(resource, bytes)| (resource, bytes as u64)).collect();
        Self { places, capacity: 0, spare: None }
    }

    /// Whether there is no room for so many pages.
    pub fn must_grow(&self, count: usize) -> bool {
        count > self.capacity || self.capacity == 0
    }

    /// Makes room for so many pages, by half as many again as there were, in new buffers. Nothing may hold the old ones:
    /// each is given back before the next is made.
    pub fn grow(&mut self, context: &Context, buffers: &mut Buffers, count: usize) -> Result<()> {
        let capacity = count.max(self.capacity + self.capacity / 2).max(4);
        for (resource, page) in &self.places {
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
                let old = buffers.get(*resource)?;
                encoder.copy_buffer_to_buffer(old, 0, &new, 0, self.capacity as u64 * page);
                context.queue.submit([encoder.finish()]);
                context.wait()?;
            }
            buffers.set(*resource, new);
        }
        let fits = self.places.iter().map(|(_, page)| (context.traits.binding_bytes / page) as usize).min();
        self.capacity = capacity.min(fits.unwrap_or(capacity));
        Ok(())
    }

    /// Copies pages, one after the other: one copied to may be copied from next.
    pub fn copy(&mut self, context: &Context, buffers: &Buffers, copies: &[(usize, usize)]) -> Result<()> {
        let mut copies = copies.iter().filter(|(from, to)| from != to).peekable();
        if copies.peek().is_none() {
            return Ok(());
        }
        let spare = match self.spare.take() {
            Some(spare) => spare,
            None => {
                let largest = self.places.iter().map(|(_, page)| *page).max().unwrap_or(0);
                context.buffer("a page on its way", largest, STORAGE)?
            }
        };
        let mut encoder = context.device.create_command_encoder(&Default::default());
        for (from, to) in copies {
            for (resource, page) in &self.places {
                let buffer = buffers.get(*resource)?;
                let at = |number: usize| number as u64 * page;
                encoder.copy_buffer_to_buffer(buffer, at(*from), &spare, 0, *page);
                encoder.copy_buffer_to_buffer(&spare, 0, buffer, at(*to), *page);
            }
        }
        context.queue.submit([encoder.finish()]);
        self.spare = Some(spare);
        Ok(())
    }
}
