//! Measures the memory of the cache that sequences take and need, and that the limits leave.

use std::{collections::HashMap, hash::Hash};

use super::{KvCache, PAGE_POSITIONS, SequenceId, TRUNCATION_MARGIN};
use crate::{Result, graph::Window};

/// An amount of the cache's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheRoom {
    /// Size of pages in bytes.
    pub page_bytes: u64,
    /// Number of recurrent states.
    pub states: usize,
}

impl CacheRoom {
    /// Returns whether this is at least as much of both as `needed`.
    #[must_use]
    pub fn covers(self, needed: Self) -> bool {
        self.page_bytes >= needed.page_bytes && self.states >= needed.states
    }

    /// Returns the sum of two amounts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let page_bytes = self.page_bytes.saturating_add(other.page_bytes);
        Self { page_bytes, states: self.states.saturating_add(other.states) }
    }

    /// Returns the difference of two amounts, at least 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let page_bytes = self.page_bytes.saturating_sub(other.page_bytes);
        Self { page_bytes, states: self.states.saturating_sub(other.states) }
    }
}

impl KvCache {
    /// Returns the memory that the limits leave to open sequences.
    pub fn free(&self) -> CacheRoom {
        let states = self.states.as_ref().map_or(usize::MAX, |states| states.free());
        let free = CacheRoom { page_bytes: self.max_bytes.saturating_sub(self.bytes()), states };
        free.plus(self.only_of(self.kept()))
    }

    /// Returns the limit of the pages of all sequences in bytes, if there is one.
    pub fn limit_bytes(&self) -> Option<u64> {
        Some(self.max_bytes).filter(|bytes| *bytes < u64::MAX)
    }

    /// Returns the memory that is free once these open sequences are empty. Kept ones leave when
    /// their memory is needed.
    pub fn taken_by(&self, ids: &[SequenceId]) -> CacheRoom {
        self.only_of(&[ids, self.kept()].concat()).minus(self.only_of(self.kept()))
    }

    /// Returns the memory of the pages and states that no other sequence has.
    fn only_of(&self, ids: &[SequenceId]) -> CacheRoom {
        let sequences = || ids.iter().filter_map(|id| self.get(*id).ok());
        let tables = || sequences().flat_map(|sequence| &sequence.tables);
        let pages = references(tables().flat_map(|table| table.pages()));
        let own = pages.into_iter().filter(|(page, count)| self.pools[page.group()].ref_count(*page) == *count);
        let page_bytes = own.map(|(page, _)| self.groups[page.group()].page_bytes as u64).sum();
        let states = self.states.as_ref().map_or(0, |states| {
            let counts = references(sequences().flat_map(|sequence| sequence.state.ids()));
            counts.into_iter().filter(|(state, count)| states.ref_count(*state) == *count).count()
        });
        CacheRoom { page_bytes, states }
    }

    /// Returns the memory that a sequence lacks for `len` positions. Layers with a window may need
    /// less, because they release pages meanwhile.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a sequence that is not open.
    pub fn lacking(&self, id: SequenceId, len: usize) -> Result<CacheRoom> {
        let sequence = self.get(id)?;
        let pages = len.div_ceil(PAGE_POSITIONS).saturating_sub(sequence.len.div_ceil(PAGE_POSITIONS));
        let of_group = |window: Option<Window>| {
            let most =
                window.map(|window| window.size().saturating_add(TRUNCATION_MARGIN).div_ceil(PAGE_POSITIONS) + 1);
            pages.min(most.unwrap_or(pages)) as u64
        };
        let page_bytes = self.groups.iter().map(|group| of_group(group.window) * group.page_bytes as u64).sum();
        let states = usize::from(self.is_recurrent() && sequence.state.ids().next().is_none());
        Ok(CacheRoom { page_bytes, states })
    }
}

/// Returns the number of times that each item occurs.
fn references<T: Eq + Hash>(items: impl Iterator<Item = T>) -> HashMap<T, u32> {
    let mut counts = HashMap::new();
    items.for_each(|item| *counts.entry(item).or_insert(0) += 1);
    counts
}
