//! Converts pages and states between their order in memory and their stored order, which
//! `kv_cache/parts.rs` describes.
//!
//! Keys are in groups of sixteen positions in memory, and element by element in all positions of a
//! page when they are stored. The scales of values are block by block in memory, and position by
//! position when they are stored. Matrices of a gated delta rule are in pieces of columns in
//! memory, and column by column when they are stored.

use super::cache::CacheMemory;
use crate::{
    Error, Result,
    backend::cpu::{
        kernels::recurrent::columns_per_piece,
        threads::pool::{Pool, Worker},
    },
    kv_cache::{CachePart, CacheType, LayerPlace, PAGE_POSITIONS},
};

/// Positions of keys that are side by side in memory.
const GROUP: usize = 16;

/// Bytes below which a part is converted by one thread.
const SMALL: usize = 256 << 10;

/// The direction of a conversion.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    /// From memory to stored bytes.
    Read,
    /// From stored bytes to memory.
    Write,
}

/// A conversion of one part.
struct Conversion<'a> {
    cache: &'a CacheMemory,
    /// The first byte in memory.
    memory: *mut u8,
    /// The first stored byte.
    stored: *mut u8,
    direction: Direction,
}

// SAFETY: threads convert different heads, whose bytes do not overlap.
unsafe impl Sync for Conversion<'_> {}

impl CacheMemory {
    /// Reads a part to stored bytes.
    ///
    /// # Errors
    /// An internal error for a part without memory or of another size.
    pub fn read(&mut self, part: CachePart, bytes: &mut [u8], pool: &mut Pool) -> Result<()> {
        let memory = self.checked(part, bytes.len())?;
        self.convert(part, memory, bytes.as_mut_ptr(), Direction::Read, pool)
    }

    /// Writes a part from stored bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&mut self, part: CachePart, bytes: &[u8], pool: &mut Pool) -> Result<()> {
        let memory = self.checked(part, bytes.len())?;
        self.convert(part, memory, bytes.as_ptr().cast_mut(), Direction::Write, pool)
    }

    fn checked(&self, part: CachePart, bytes: usize) -> Result<*mut u8> {
        let memory = self.start(part).filter(|_| self.layout.stored_bytes(part) == bytes);
        memory.ok_or_else(|| Error::internal("a part of the cache has no memory or another size"))
    }

    fn convert(
        &mut self,
        part: CachePart,
        memory: *mut u8,
        stored: *mut u8,
        direction: Direction,
        pool: &mut Pool,
    ) -> Result<()> {
        let conversion = Conversion { cache: self, memory, stored, direction };
        let items = conversion.items(part);
        if self.layout.stored_bytes(part) < SMALL {
            // SAFETY: `checked` found the part's memory, and `bytes` has its size.
            unsafe { items.iter().for_each(|item| conversion.item(item)) };
            return Ok(());
        }
        // SAFETY: as above; each item is converted by one thread.
        let job = |worker: Worker<'_>| unsafe {
            items[worker.share(items.len())].iter().for_each(|item| conversion.item(item));
        };
        pool.run(&job)
    }
}

/// A piece of a part that one thread converts.
enum Item {
    /// The keys of a head.
    Keys(LayerPlace, usize),
    /// The values of a head.
    Values(LayerPlace, usize),
    /// Floats in the same order, from two offsets in bytes on: in memory and stored.
    Floats { memory: usize, stored: usize, count: usize },
    /// A matrix of a gated delta rule of `size` rows, from two offsets in bytes on.
    Matrix { memory: usize, stored: usize, size: usize },
}

impl Conversion<'_> {
    fn items(&self, part: CachePart) -> Vec<Item> {
        let layout = &self.cache.layout;
        match part {
            CachePart::Page(page) => {
                let layers = layout.layers.iter().filter(|layer| layer.group == page.group());
                let heads = layers.flat_map(|layer| (0..layer.kv_heads).map(move |head| (*layer, head)));
                let values =
                    |layer: LayerPlace, head| (!layer.keys_only).then_some(Item::Values(layer, head)).into_iter();
                heads.flat_map(|(layer, head)| values(layer, head).chain([Item::Keys(layer, head)])).collect()
            }
            CachePart::State(_) => {
                let (mut items, mut stored) = (vec![], 0);
                for (index, (state, memory)) in layout.states.iter().zip(&layout.state_offsets).enumerate() {
                    let count = state.rows * state.width;
                    if self.cache.is_matrix(index) {
                        let bytes = 4 * state.width * state.width;
                        items.extend((0..state.rows / state.width).map(|head| Item::Matrix {
                            memory: memory + head * bytes,
                            stored: stored + head * bytes,
                            size: state.width,
                        }));
                    } else {
                        items.push(Item::Floats { memory: *memory, stored, count });
                    }
                    stored += 4 * count;
                }
                items
            }
        }
    }

    /// # Safety
    /// `memory` and `stored` have the bytes of the part, and no other thread converts the item.
    unsafe fn item(&self, item: &Item) {
        let element = match self.cache.layout.cache_type {
            CacheType::F32 => 4,
            CacheType::F16 => 2,
            CacheType::Q8_0 => 1,
        };
        // SAFETY: by the caller.
        unsafe {
            match *item {
                Item::Keys(layer, head) => {
                    let head = HeadPlace::new(&layer, head, element);
                    self.keys(&head);
                    self.scales(&head, |block, position| block * PAGE_POSITIONS + position);
                }
                Item::Values(layer, head) => {
                    let head = HeadPlace::new(&layer, layer.kv_heads + head, element);
                    self.copy(head.memory, head.stored, PAGE_POSITIONS * head.width * element);
                    self.scales(&head, |block, position| position * head.blocks + block);
                }
                Item::Floats { memory, stored, count } => self.copy(memory, stored, 4 * count),
                Item::Matrix { memory, stored, size } => self.matrix(memory, stored, size),
            }
        }
    }

    /// # Safety
    /// As [`Conversion::item`].
    unsafe fn keys(&self, head: &HeadPlace) {
        let HeadPlace { memory, stored, head_dim, width, element, .. } = *head;
        let bytes = GROUP * element;
        // SAFETY: by the caller.
        unsafe {
            for row in 0..head_dim {
                for group in 0..PAGE_POSITIONS / GROUP {
                    let from = memory + (group * head_dim + row) * bytes;
                    self.copy(from, stored + (row * PAGE_POSITIONS / GROUP + group) * bytes, bytes);
                }
            }
            if self.direction == Direction::Read {
                let padding = (width - head_dim) * PAGE_POSITIONS * element;
                self.stored.add(stored + head_dim * PAGE_POSITIONS * element).write_bytes(0, padding);
            }
        }
    }

    /// Converts the f16 scales of a head, which are `[blocks, 64]` in memory. `index` returns the
    /// stored index of a block and a position.
    ///
    /// # Safety
    /// As [`Conversion::item`].
    unsafe fn scales(&self, head: &HeadPlace, index: impl Fn(usize, usize) -> usize) {
        let memory = head.memory + PAGE_POSITIONS * head.width * head.element;
        for block in 0..head.blocks {
            for position in 0..PAGE_POSITIONS {
                let stored = head.stored_scales + 2 * index(block, position);
                // SAFETY: by the caller.
                unsafe { self.copy(memory + 2 * (block * PAGE_POSITIONS + position), stored, 2) };
            }
        }
    }

    /// # Safety
    /// As [`Conversion::item`].
    unsafe fn matrix(&self, memory: usize, stored: usize, size: usize) {
        let columns = columns_per_piece(size);
        for column in 0..size {
            let piece = memory + 4 * (column / columns * size * columns + column % columns);
            for row in 0..size {
                // SAFETY: by the caller.
                unsafe { self.copy(piece + 4 * row * columns, stored + 4 * (column * size + row), 4) };
            }
        }
    }

    /// # Safety
    /// As [`Conversion::item`].
    unsafe fn copy(&self, memory: usize, stored: usize, bytes: usize) {
        // SAFETY: by the caller; the stored bytes are a buffer of the caller's.
        unsafe {
            let (memory, stored) = (self.memory.add(memory), self.stored.add(stored));
            match self.direction {
                Direction::Read => stored.copy_from_nonoverlapping(memory, bytes),
                Direction::Write => memory.copy_from_nonoverlapping(stored, bytes),
            }
        }
    }
}

/// The keys or values of a head in a page. Offsets are in bytes.
struct HeadPlace {
    memory: usize,
    stored: usize,
    stored_scales: usize,
    head_dim: usize,
    /// Elements of a position, with padding.
    width: usize,
    /// Bytes of an element.
    element: usize,
    /// Number of blocks with a scale.
    blocks: usize,
}

impl HeadPlace {
    /// Returns the place of a head; `index` counts the keys of all heads, and then the values.
    fn new(layer: &LayerPlace, index: usize, element: usize) -> Self {
        let LayerPlace { head_dim, offset, row_bytes, .. } = *layer;
        let (width, blocks) = if element == 1 { (head_dim, head_dim / 32) } else { (row_bytes / element, 0) };
        let codes = PAGE_POSITIONS * width * element;
        let scales = PAGE_POSITIONS * blocks * 2;
        Self {
            memory: offset + index * PAGE_POSITIONS * row_bytes,
            stored: offset + index * codes,
            stored_scales: offset + layer.matrices() * codes + index * scales,
            head_dim,
            width,
            element,
            blocks,
        }
    }
}
