//! Describes the parts of a sequence that a session stores, apart from their place in memory.
//!
//! Stored parts have one order of elements, which backends convert to and from their own. A page
//! has, for each attention layer of its group, the keys of each head, `[head_dim, 64]`, and then,
//! unless keys are values too, the values of each head, `[64, head_dim]`, with `head_dim` padded to
//! a multiple of 16. In q8_0
//! the int8 codes are followed by f16 scales: of the keys of each head, `[head_dim / 32, 64]`, and
//! then of the values of each head, `[64, head_dim / 32]`. A state has the f32 state of each
//! recurrent op: the inputs of a convolution, `[kernel - 1, channels]`, the matrices of a gated
//! delta rule, `[value_heads, columns, rows]`, or of a scan, `[heads, head_dim, size]`.

use super::{
    CHECKPOINTS, CacheLayout, CacheType, KvCache, LayerPlace, PAGE_POSITIONS, PageId, PageTable, Sequence, SequenceId,
    StateId, pages::PagePool,
};
use crate::{Error, Result};

/// A page or a state in the memory of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePart {
    /// A page of a group of layers.
    Page(PageId),
    /// A state of all recurrent ops.
    State(StateId),
}

/// A part of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencePart {
    /// The page or state.
    pub part: CachePart,
    /// The first position of a page; 0 for a state.
    pub start: usize,
}

/// The positions of a sequence and the parts that it has in a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceExtent {
    /// Number of positions.
    pub len: usize,
    /// End position of the last prompt.
    pub prompt_end: usize,
    /// For each group of layers, whether the sequence has the page of each range of positions.
    pub pages: Vec<Vec<bool>>,
    /// Positions of the checkpoints of recurrent layers, in order.
    pub checkpoints: Vec<usize>,
}

impl CacheLayout {
    /// Returns the size of a stored part in bytes.
    pub fn stored_bytes(&self, part: CachePart) -> usize {
        match part {
            CachePart::Page(page) => self.groups.get(page.group()).map_or(0, |group| group.page_bytes),
            CachePart::State(_) => self.states.iter().map(|state| 4 * state.rows * state.width).sum(),
        }
    }

    /// Sets the elements of a stored part to zero that belong to no position before `len`, or that
    /// pad a head.
    pub fn clear_unused(&self, SequencePart { part, start }: SequencePart, len: usize, bytes: &mut [u8]) {
        let CachePart::Page(page) = part else { return };
        let positions = len.saturating_sub(start).min(PAGE_POSITIONS);
        for layer in self.layers.iter().filter(|layer| layer.group == page.group()) {
            let end = layer.offset + PAGE_POSITIONS * layer.position_bytes();
            if let Some(bytes) = bytes.get_mut(layer.offset..end) {
                layer.clear_unused(self.cache_type, positions, bytes);
            }
        }
    }
}

impl LayerPlace {
    fn clear_unused(&self, cache_type: CacheType, positions: usize, bytes: &mut [u8]) {
        let width = match cache_type {
            CacheType::F32 | CacheType::F16 => self.head_dim.next_multiple_of(16),
            CacheType::Q8_0 => self.head_dim,
        };
        if positions == PAGE_POSITIONS && width == self.head_dim {
            return;
        }
        let element = match cache_type {
            CacheType::F32 => 4,
            CacheType::F16 => 2,
            CacheType::Q8_0 => 1,
        };
        let matrix = PAGE_POSITIONS * width * element;
        let (codes, scales) = bytes.split_at_mut((self.matrices() * matrix).min(bytes.len()));
        clear_matrices(codes, self.kv_heads * matrix, [positions, self.head_dim, width], element);
        let of_keys = scales.len() / self.matrices() * self.kv_heads;
        clear_matrices(scales, of_keys, [positions, width / 32, width / 32], 2);
    }
}

/// Sets elements of the keys `[heads, width, 64]` in the first `of_keys` of `bytes`, and of the
/// values `[heads, 64, width]` after them, to zero: from position `positions`, and from element
/// `used` on.
fn clear_matrices(bytes: &mut [u8], of_keys: usize, [positions, used, width]: [usize; 3], element: usize) {
    if bytes.is_empty() {
        return;
    }
    let (keys, values) = bytes.split_at_mut(of_keys);
    for (row, bytes) in keys.chunks_exact_mut(PAGE_POSITIONS * element).enumerate() {
        let kept = if row % width < used { positions } else { 0 };
        bytes[kept * element..].fill(0);
    }
    for (row, bytes) in values.chunks_exact_mut(width * element).enumerate() {
        let kept = if row % PAGE_POSITIONS < positions { used } else { 0 };
        bytes[kept * element..].fill(0);
    }
}

impl KvCache {
    /// Returns the positions of a sequence and the parts that it has.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn extent(&self, id: SequenceId) -> Result<SequenceExtent> {
        let Sequence { len, tables, prompt_end, .. } = self.get(id)?;
        let pages = tables.iter().map(|table| table.entries().iter().map(Option::is_some).collect()).collect();
        let checkpoints = self.checkpoints(id)?.collect();
        // The prompt may not be computed to its end.
        Ok(SequenceExtent { len: *len, prompt_end: *len.min(prompt_end), pages, checkpoints })
    }

    /// Returns the positions of a sequence's checkpoints, in order.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn checkpoints(&self, id: SequenceId) -> Result<impl Iterator<Item = usize>> {
        Ok(self.get(id)?.state.checkpoints().iter().map(|(position, _)| *position))
    }

    /// Returns the parts of a sequence: the pages of each group in the order of their positions,
    /// the states of the checkpoints, and the last state.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn parts(&self, id: SequenceId) -> Result<Vec<SequencePart>> {
        let Sequence { tables, state, .. } = self.get(id)?;
        let numbered = tables.iter().flat_map(|table| table.entries().iter().enumerate());
        let pages = numbered.filter_map(|(index, page)| Some((index * PAGE_POSITIONS, CachePart::Page((*page)?))));
        let states = state.distinct_ids().map(|id| (0, CachePart::State(id)));
        Ok(pages.chain(states).map(|(start, part)| SequencePart { part, start }).collect())
    }

    /// Opens a sequence with new pages and states. The caller writes their content.
    ///
    /// # Errors
    /// [`Error::Session`] for an extent that no sequence of this cache can have;
    /// [`Error::ContextFull`] beyond the context length; [`Error::Memory`] beyond the limits.
    pub fn open_with(&mut self, extent: &SequenceExtent) -> Result<SequenceId> {
        self.check_length(0, extent.len)?;
        self.check_extent(extent)?;
        let counts: Vec<_> = extent.pages.iter().map(|pages| pages.iter().filter(|exists| **exists).count()).collect();
        while self.free_pages_for(&counts, &[])? {}
        let states = extent.checkpoints.len() + 1;
        while self.free_states_for(states, states)? {}
        self.check_bytes(self.page_bytes(&counts))?;
        let state = match &mut self.states {
            Some(states) => states.restore(&extent.checkpoints, extent.len)?,
            None => Default::default(),
        };
        let tables = extent.pages.iter().zip(&mut self.pools).map(|(pages, pool)| allocate(pages, pool)).collect();
        Ok(self.insert(Sequence { len: extent.len, tables, prompt_end: extent.prompt_end, state }))
    }

    fn check_extent(&self, extent: &SequenceExtent) -> Result<()> {
        let SequenceExtent { len, prompt_end, pages, checkpoints } = extent;
        let covers = |pages: &Vec<bool>| pages.len() == len.div_ceil(PAGE_POSITIONS);
        if pages.len() != self.groups.len() || !pages.iter().all(covers) {
            return Err(Error::session("has pages for other layers or positions than it states"));
        }
        for (pages, group) in pages.iter().zip(&self.groups) {
            let first = group.first_seen(*len).min(len.saturating_sub(1)) / PAGE_POSITIONS;
            if !pages[first.min(pages.len())..].iter().all(|exists| *exists) {
                return Err(Error::session("lacks pages that the next token sees"));
            }
        }
        let are_positions =
            checkpoints.is_sorted_by(|a, b| a < b) && checkpoints.iter().all(|at| (1..=*len).contains(at));
        if !are_positions || checkpoints.len() > CHECKPOINTS || (self.states.is_none() && !checkpoints.is_empty()) {
            return Err(Error::session("has checkpoints that the model cannot have"));
        }
        if prompt_end > len {
            return Err(Error::session("has a prompt that ends after its last position"));
        }
        Ok(())
    }
}

fn allocate(pages: &[bool], pool: &mut PagePool) -> PageTable {
    pages.iter().map(|exists| exists.then(|| pool.allocate())).collect()
}
