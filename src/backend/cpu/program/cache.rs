//! Manages the memory of the KV cache and of recurrent states.

use crate::{
    Result,
    backend::{
        Step,
        cpu::{
            kernels::{
                attention::LayerPages,
                recurrent::{RunState, StateCheckpoint},
            },
            memory::pages::PageSlabs,
        },
    },
    kv_cache::{CacheLayout, LayerPlace, StateId, StateUpdate},
};

/// The pages and states of all sequences.
pub(crate) struct CacheMemory {
    pub layout: CacheLayout,
    /// The pages of each group of layers.
    pages: Vec<PageSlabs>,
    states: PageSlabs,
}

impl CacheMemory {
    /// Returns memory without any page.
    pub fn new(layout: CacheLayout) -> Self {
        let pages = layout.groups.iter().map(|group| PageSlabs::new(group.page_bytes)).collect();
        let states = PageSlabs::new(layout.state_bytes);
        Self { layout, pages, states }
    }

    /// Allocates the pages and states that the step names for the first time, and copies pages as
    /// it says.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn prepare(&mut self, step: &Step<'_>) -> Result<()> {
        for (group, pages) in self.pages.iter_mut().enumerate() {
            pages.grow(step.page_count(group))?;
        }
        step.copies.iter().for_each(|(from, to)| self.pages[from.group()].copy(from.index(), to.index()));
        let ids = step.runs.iter().filter_map(|run| run.state).flat_map(StateUpdate::ids);
        self.states.grow(ids.map(|id| id.index() + 1).max().unwrap_or(0))
    }

    /// Returns the first byte of a page.
    pub fn page(&self, group: usize, index: usize) -> *mut u8 {
        self.pages[group].start(index)
    }

    /// Returns a layer's place in the pages of a run, `[groups, pages]`.
    pub fn layer_pages<'a>(&self, layer: usize, pages: &'a [Vec<*mut u8>]) -> LayerPages<'a> {
        let LayerPlace { kv_heads, head_dim, group, offset, row_bytes } = self.layout.layers[layer];
        LayerPages { cache_type: self.layout.cache_type, pages: &pages[group], offset, row_bytes, kv_heads, head_dim }
    }

    /// Returns the state of recurrent op `op` for a run that starts at position `start`.
    pub fn run_state(&self, op: usize, start: usize, update: &StateUpdate) -> RunState {
        let offset = self.layout.state_offsets[op];
        let place = |id: StateId| self.states.start(id.index()).wrapping_add(offset).cast::<f32>();
        let checkpoints = update.checkpoints.iter();
        RunState {
            from: update.from.map_or(std::ptr::null(), |id| place(id).cast_const()),
            to: place(update.to),
            checkpoints: checkpoints.map(|(end, id)| StateCheckpoint { tokens: end - start, to: place(*id) }).collect(),
        }
    }
}
