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
    graph::Op,
    kv_cache::{CacheLayout, CachePart, LayerPlace, PageId, StateId, StateUpdate},
    plan::Plan,
};

/// The pages and states of all sequences.
pub(crate) struct CacheMemory {
    pub layout: CacheLayout,
    /// The pages of each group of layers.
    pages: Vec<PageSlabs>,
    states: PageSlabs,
    /// Whether the state of each recurrent op has the matrices of a gated delta rule.
    matrices: Vec<bool>,
}

impl CacheMemory {
    /// Returns memory without any page, for the steps of a plan.
    pub fn new(layout: CacheLayout, plan: &Plan) -> Self {
        let pages = layout.groups.iter().map(|group| PageSlabs::new(group.page_bytes)).collect();
        let states = PageSlabs::new(layout.state_bytes);
        let is_matrix =
            |state| plan.steps().iter().any(|step| matches!(&step.op, Op::GatedDelta(spec) if spec.state == state));
        let matrices = (0..layout.states.len()).map(is_matrix).collect();
        Self { layout, pages, states, matrices }
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

    /// Copies pages, in order, and allocates memory for `parts`.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn prepare_parts(&mut self, copies: &[(PageId, PageId)], parts: &[CachePart]) -> Result<()> {
        let copied = copies.iter().flat_map(|(from, to)| [*from, *to]).map(CachePart::Page);
        for part in copied.chain(parts.iter().copied()) {
            match part {
                CachePart::Page(page) => self.pages[page.group()].grow(page.index() + 1)?,
                CachePart::State(state) => self.states.grow(state.index() + 1)?,
            }
        }
        copies.iter().for_each(|(from, to)| self.pages[from.group()].copy(from.index(), to.index()));
        Ok(())
    }

    /// Returns the first byte of a part, if it has memory.
    pub fn start(&self, part: CachePart) -> Option<*mut u8> {
        let (slabs, index) = match part {
            CachePart::Page(page) => (self.pages.get(page.group())?, page.index()),
            CachePart::State(state) => (&self.states, state.index()),
        };
        (index < slabs.len()).then(|| slabs.start(index))
    }

    /// Returns whether a recurrent op's state has the matrices of a gated delta rule.
    pub fn is_matrix(&self, op: usize) -> bool {
        self.matrices[op]
    }

    /// Returns the first byte of a page.
    pub fn page(&self, group: usize, index: usize) -> *mut u8 {
        self.pages[group].start(index)
    }

    /// Returns a layer's place in the pages of a run, `[groups, pages]`.
    pub fn layer_pages<'a>(&self, layer: usize, pages: &'a [Vec<*mut u8>]) -> LayerPages<'a> {
        let LayerPlace { kv_heads, head_dim, keys_only, group, offset, row_bytes } = self.layout.layers[layer];
        let (cache_type, pages) = (self.layout.cache_type, pages[group].as_slice());
        LayerPages { cache_type, pages, offset, row_bytes, kv_heads, head_dim, keys_only }
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
