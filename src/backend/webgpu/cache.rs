//! Allocates the memory of the KV cache and of recurrent states: a growing buffer for each layer or
//! recurrent op.

use super::{
    context::Context,
    kernel::Resource,
    program::{Buffers, STORAGE},
};
use crate::{
    Error, Result,
    kv_cache::{CacheLayout, PAGE_POSITIONS},
};

/// The pages of all layers of a group, or the states of all recurrent ops.
pub(super) struct PageBuffers {
    /// The buffer of each layer or op, and the bytes of a page or state there.
    buffers: Vec<(Resource, u64)>,
    /// Pages or states that each buffer has space for.
    capacity: usize,
    /// The intermediate buffer of copies, because WebGPU forbids copies within one buffer.
    copy_buffer: Option<wgpu::Buffer>,
}

impl PageBuffers {
    pub fn of_group(cache: &CacheLayout, group: usize) -> Self {
        let layers = cache.layers.iter().enumerate().filter(|(_, layer)| layer.group == group);
        let bytes = layers.map(|(number, layer)| (Resource::Cache(number), PAGE_POSITIONS * layer.position_bytes()));
        Self::new(bytes)
    }

    pub fn of_states(cache: &CacheLayout) -> Self {
        let states = cache.states.iter().enumerate();
        Self::new(states.map(|(number, state)| (Resource::State(number), 4 * state.rows * state.width)))
    }

    fn new(buffers: impl Iterator<Item = (Resource, usize)>) -> Self {
        let buffers = buffers.map(|(resource, bytes)| (resource, bytes as u64)).collect();
        Self { buffers, capacity: 0, copy_buffer: None }
    }

    /// Returns whether the buffers have space for fewer than `count` pages.
    pub fn must_grow(&self, count: usize) -> bool {
        count > self.capacity || self.capacity == 0
    }

    /// Returns the places of a page or state: buffer, offset and bytes; none if it has no memory.
    pub fn places(&self, index: usize) -> Vec<(Resource, u64, u64)> {
        let place = |(resource, bytes): &(Resource, u64)| (*resource, index as u64 * bytes, *bytes);
        if index < self.capacity { self.buffers.iter().map(place).collect() } else { vec![] }
    }

    /// Replaces the buffers by larger ones with space for at least `count` pages, and for half more
    /// than before. No bind group may refer to the old buffers, so that each is freed before the
    /// next is allocated.
    pub fn grow(&mut self, context: &Context, buffers: &mut Buffers, count: usize) -> Result<()> {
        let capacity = count.max(self.capacity + self.capacity / 2).max(4);
        for (resource, page) in &self.buffers {
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
        let fits = self.buffers.iter().map(|(_, page)| (context.traits.binding_bytes / page) as usize).min();
        self.capacity = capacity.min(fits.unwrap_or(capacity));
        Ok(())
    }

    /// Copies pages in order, so that the target of one copy can be the source of the next.
    pub fn copy(&mut self, context: &Context, buffers: &Buffers, copies: &[(usize, usize)]) -> Result<()> {
        let mut copies = copies.iter().filter(|(from, to)| from != to).peekable();
        if copies.peek().is_none() {
            return Ok(());
        }
        let copy_buffer = match self.copy_buffer.take() {
            Some(buffer) => buffer,
            None => {
                let largest = self.buffers.iter().map(|(_, page)| *page).max().unwrap_or(0);
                context.buffer("the copy of a page", largest, STORAGE)?
            }
        };
        let mut encoder = context.device.create_command_encoder(&Default::default());
        for (from, to) in copies {
            for (resource, page) in &self.buffers {
                let buffer = buffers.get(*resource)?;
                let offset = |index: usize| index as u64 * page;
                encoder.copy_buffer_to_buffer(buffer, offset(*from), &copy_buffer, 0, *page);
                encoder.copy_buffer_to_buffer(&copy_buffer, 0, buffer, offset(*to), *page);
            }
        }
        context.queue.submit([encoder.finish()]);
        self.copy_buffer = Some(copy_buffer);
        Ok(())
    }
}
