//! Keeps sequences for later ones that begin with the same tokens, in memory that no open sequence
//! needs.
//!
//! Kept sequences share pages and states with others by reference counts, as forks do. When an open
//! sequence needs memory, kept sequences are evicted, the least recently used one first.

use std::{collections::HashMap, hash::Hash};

use super::{KvCache, PageId, PageTable, Sequence, SequenceId, Stage, StateId, States, pages::PagePool};
use crate::Result;

/// The kept sequences, and the memory up to which they are kept.
#[derive(Debug, Default)]
pub(super) struct KeptSequences {
    /// The sequences, the least recently used one first.
    ids: Vec<SequenceId>,
    /// Sequences that are no longer kept, and are now empty.
    evicted: Vec<SequenceId>,
    /// Size in bytes of the memory of pages up to which this memory grows rather than that a
    /// sequence is evicted.
    bytes: u64,
    /// Number of states up to which their memory grows.
    states: usize,
}

impl KvCache {
    /// Lets sequences be kept, as long as the memory of all pages does not grow beyond `bytes` and
    /// the memory of recurrent states does not grow beyond `states` for their sake.
    #[must_use]
    pub fn keeping(self, bytes: u64, states: usize) -> Self {
        Self { kept: KeptSequences { bytes, states, ..KeptSequences::default() }, ..self }
    }

    /// Returns whether sequences can be kept.
    pub fn keeps(&self) -> bool {
        self.kept.bytes > 0 || self.kept.states > 0
    }

    /// Keeps an open sequence until its memory is needed, or until it is closed. It no longer
    /// counts as open, and must not grow. A kept sequence becomes the most recently used one.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a sequence that is not open.
    pub fn keep(&mut self, id: SequenceId) -> Result<()> {
        let pages = self.get(id)?.pages();
        if self.kept.ids.contains(&id) {
            self.kept.ids.retain(|kept| *kept != id);
        } else {
            pages.into_iter().for_each(|page| self.pools[page.group()].keep(page));
        }
        self.kept.ids.push(id);
        Ok(())
    }

    /// Returns the kept sequences, the least recently used one first.
    pub fn kept(&self) -> &[SequenceId] {
        &self.kept.ids
    }

    /// Returns the sequences that are no longer kept, because their memory was needed. The caller
    /// closes them.
    pub fn evicted(&self) -> &[SequenceId] {
        &self.kept.evicted
    }

    /// Returns the number of pages that only kept sequences have, and their size in bytes.
    pub fn kept_pages(&self) -> (usize, u64) {
        let counts: Vec<_> = self.pools.iter().map(PagePool::only_kept).collect();
        (counts.iter().sum(), self.page_bytes(&counts))
    }

    /// Replaces the positions of `id` by those of `source`, as [`fork`](Self::fork) shares them.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a sequence that is not open.
    pub fn replace(&mut self, id: SequenceId, source: SequenceId) -> Result<()> {
        self.get(source)?;
        self.truncate(id, 0)?;
        let fork = self.fork(source)?;
        self.sequences[id.0] = self.sequences[fork.0].take();
        Ok(())
    }

    /// Returns the length that [`truncate`](Self::truncate) would give a sequence.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a sequence that is not open.
    pub fn reach(&self, id: SequenceId, len: usize) -> Result<usize> {
        let sequence = self.get(id)?;
        let len = sequence.reachable(&self.groups, len.min(sequence.len));
        if !self.is_recurrent() {
            return Ok(len);
        }
        Ok(sequence.reachable(&self.groups, sequence.state.last_until(len)))
    }

    /// Removes a sequence from the kept and the evicted ones.
    pub(super) fn forget(&mut self, id: SequenceId) {
        if self.kept.ids.contains(&id) {
            let pages = self.get(id).map(Sequence::pages).unwrap_or_default();
            pages.into_iter().for_each(|page| self.pools[page.group()].end_keeping(page));
        }
        self.kept.ids.retain(|kept| *kept != id);
        self.kept.evicted.retain(|evicted| *evicted != id);
    }

    /// Frees the memory of a kept sequence.
    fn evict(&mut self, id: SequenceId) -> Result<()> {
        self.forget(id);
        self.truncate(id, 0)?;
        self.kept.evicted.push(id);
        Ok(())
    }

    /// Evicts all kept sequences, and lets the memory grow no further for later ones.
    pub fn evict_kept(&mut self) -> Result<()> {
        let memory = self.page_bytes(&self.pools.iter().map(PagePool::len).collect::<Vec<_>>());
        self.kept.bytes = self.kept.bytes.min(memory);
        self.kept.states = self.kept.states.min(self.states.as_ref().map_or(0, States::len));
        self.kept.ids.clone().into_iter().try_for_each(|id| self.evict(id))?;
        self.pools.iter_mut().for_each(PagePool::prefer_first);
        Ok(())
    }

    /// Evicts kept sequences, so that a sequence can grow by `pages` pages in each group.
    pub(super) fn free_pages(&mut self, id: SequenceId, pages: usize) -> Result<()> {
        while !self.kept.ids.is_empty() {
            let mut new = vec![pages; self.groups.len()];
            let copied: Vec<_> = self.shared_tails(id).collect();
            copied.iter().for_each(|page| new[page.group()] += 1);
            if !self.free_pages_for(&new, &copied)? {
                break;
            }
        }
        Ok(())
    }

    /// Evicts a kept sequence if its memory is needed for `new` pages of each group, which include
    /// copies of the shared pages `copied`. Returns whether a sequence was evicted.
    pub(super) fn free_pages_for(&mut self, new: &[usize], copied: &[PageId]) -> Result<bool> {
        if self.kept.ids.is_empty() {
            return Ok(false);
        }
        let grown: Vec<_> = self.pools.iter().zip(new).map(|(pool, new)| new.saturating_sub(pool.free())).collect();
        let memory: Vec<_> = self.pools.iter().zip(&grown).map(|(pool, grown)| pool.len() + grown).collect();
        let exceeds = self.bytes().saturating_add(self.page_bytes(new)) > self.max_bytes;
        if !exceeds && (grown.iter().all(|grown| *grown == 0) || self.page_bytes(&memory) <= self.kept.bytes) {
            return Ok(false);
        }
        // A page need not be copied if only kept sequences share it.
        let users = |page: &PageId| self.pools[page.group()].ref_count(*page) - u32::from(copied.contains(page));
        let least = self.least_recent(Sequence::pages, users);
        least.map_or(Ok(false), |id| self.evict(id).map(|()| true))
    }

    /// Evicts kept sequences, so that a sequence can advance to position `to`.
    pub(super) fn free_states(&mut self, id: SequenceId, to: usize, stage: Stage) -> Result<()> {
        while let Some(states) = self.states.as_ref().filter(|_| !self.kept.ids.is_empty()) {
            let [wanted, needed] = states.wanted(&self.get(id)?.state, to, stage);
            if !self.free_states_for(wanted, needed)? {
                break;
            }
        }
        Ok(())
    }

    /// Evicts a kept sequence if its states are needed for `wanted` new ones, of which `needed` are
    /// indispensable. Returns whether a sequence was evicted.
    pub(super) fn free_states_for(&mut self, wanted: usize, needed: usize) -> Result<bool> {
        let Some(states) = self.states.as_ref().filter(|states| !states.has_room(wanted, self.kept.states)) else {
            return Ok(false);
        };
        let least = self.least_recent(Sequence::states, |state| states.ref_count(*state));
        // The sequence may have to write a new state because it shares its own with a kept one.
        let any = self.kept.ids.first().filter(|_| !states.has_room(needed, usize::MAX)).copied();
        least.or(any).map_or(Ok(false), |id| self.evict(id).map(|()| true))
    }

    /// Returns the least recently used kept sequence that has memory which only kept sequences
    /// have.
    fn least_recent<T: Eq + Hash>(
        &self,
        memory: fn(&Sequence) -> Vec<T>,
        users: impl Fn(&T) -> u32,
    ) -> Option<SequenceId> {
        let counts = self.counts(memory);
        let is_kept = |part: &T| counts.get(part) == Some(&users(part));
        let frees = |id: &&SequenceId| self.get(**id).is_ok_and(|sequence| memory(sequence).iter().any(is_kept));
        self.kept.ids.iter().find(frees).copied()
    }

    /// Returns the number of kept sequences that have each page or state.
    fn counts<T: Eq + Hash>(&self, memory: fn(&Sequence) -> Vec<T>) -> HashMap<T, u32> {
        let mut counts = HashMap::new();
        let sequences = self.kept.ids.iter().filter_map(|id| self.get(*id).ok());
        sequences.flat_map(memory).for_each(|part| *counts.entry(part).or_default() += 1);
        counts
    }

    /// Returns the size in bytes of this number of pages of each group.
    pub(super) fn page_bytes(&self, counts: &[usize]) -> u64 {
        let sizes = self.groups.iter().zip(counts);
        sizes.map(|(group, count)| (*count as u64).saturating_mul(group.page_bytes as u64)).sum()
    }
}

impl Sequence {
    fn pages(&self) -> Vec<PageId> {
        self.tables.iter().flat_map(PageTable::pages).collect()
    }

    fn states(&self) -> Vec<StateId> {
        self.state.ids().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        graph::Window,
        kv_cache::{CacheLayout, CacheType, PageGroup},
    };

    const MAX_PAGES: u64 = 24;
    const MAX_STATES: usize = 20;
    const PAGE_BYTES: usize = 10;

    fn cache(recurrent: bool, kept_pages: u64) -> KvCache {
        let groups =
            [None, Some(Window::Sliding(100))].map(|window| PageGroup { window, page_bytes: PAGE_BYTES }).to_vec();
        let state_bytes = if recurrent { 8 } else { 0 };
        let layout = CacheLayout {
            layers: vec![],
            groups,
            cache_type: CacheType::F32,
            states: vec![],
            state_offsets: vec![],
            state_bytes,
        };
        let bytes = |pages: u64| pages * PAGE_BYTES as u64;
        KvCache::new(&layout, 1500).with_limits(bytes(MAX_PAGES), MAX_STATES).keeping(bytes(kept_pages), MAX_STATES)
    }

    /// Returns the number of times that some sequences have each page or state.
    fn uses<'s, T: Eq + Hash>(
        sequences: impl Iterator<Item = &'s Sequence>,
        memory: fn(&Sequence) -> Vec<T>,
    ) -> HashMap<T, u32> {
        let mut uses = HashMap::new();
        sequences.flat_map(memory).for_each(|part| *uses.entry(part).or_default() += 1);
        uses
    }

    fn check_counts(cache: &KvCache) {
        let pages = uses(cache.sequences.iter().flatten(), Sequence::pages);
        assert_eq!(pages.len(), cache.pages_in_use());
        pages.iter().for_each(|(page, count)| assert_eq!(cache.pools[page.group()].ref_count(*page), *count));
        let kept = cache.counts(Sequence::pages);
        let only_kept = kept.iter().filter(|(page, count)| pages[page] == **count).count();
        assert_eq!(cache.kept_pages().0, only_kept);
        if let Some(states) = &cache.states {
            let uses = uses(cache.sequences.iter().flatten(), Sequence::states);
            uses.iter().for_each(|(id, count)| assert_eq!(states.ref_count(*id), *count));
        }
    }

    /// Extends a sequence by a step, and checks that this fails at most if the open sequences
    /// leave no room.
    fn extend(cache: &mut KvCache, open: &[SequenceId], id: SequenceId, count: usize, stage: Stage) {
        let sequences = || open.iter().map(|id| cache.get(*id).unwrap());
        let len = cache.len(id).unwrap();
        let pages = uses(sequences(), Sequence::pages);
        let is_shared = |table: &PageTable| table.page(len.saturating_sub(1)).is_some_and(|page| pages[&page] > 1);
        let tails = cache.get(id).unwrap().tables.iter().filter(|table| is_shared(table)).count();
        let new = 2 * ((len + count).div_ceil(64) - len.div_ceil(64)) + tails;
        let fits = pages.len() + new <= MAX_PAGES as usize;
        let states = uses(sequences(), Sequence::states).len();
        let before: usize = cache.pools.iter().map(PagePool::len).sum();
        match cache.extend(id, count) {
            Ok(start) => {
                let after: usize = cache.pools.iter().map(PagePool::len).sum();
                let memory = (after * PAGE_BYTES) as u64;
                assert!(after == before || memory <= cache.kept.bytes || cache.kept_pages().0 == 0, "memory grew");
                match cache.advance(id, start + count, stage) {
                    Ok(_) => {}
                    // A run takes up to four states, and its first one may be an open sequence's.
                    Err(error) => assert!(states + 4 > MAX_STATES, "{error}"),
                }
            }
            Err(error) => assert!(!fits || len + count > 1500, "{error}"),
        }
        cache.take_copies();
        if cache.states.is_some() && cache.get(id).unwrap().state.last_until(usize::MAX) != cache.len(id).unwrap() {
            cache.truncate(id, len).unwrap();
        }
        assert!(cache.bytes() <= MAX_PAGES * PAGE_BYTES as u64);
    }

    #[test]
    fn kept_sequences_take_only_memory_that_others_do_not_need() {
        let mut hits = 0;
        for seed in 0..60u32 {
            let mut random = seed;
            let mut below = |count: usize| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 8) as usize % count
            };
            let mut cache = cache(seed % 2 == 1, [MAX_PAGES, 6, 0][seed as usize % 3]);
            let mut open = vec![cache.open()];
            for _ in 0..150 {
                let id = open[below(open.len())];
                let len = cache.len(id).unwrap();
                match below(8) {
                    0 if open.len() < 4 => open.push(cache.open()),
                    1 if open.len() < 4 => open.push(cache.fork(id).unwrap()),
                    2 => {
                        let fork = cache.fork(id).unwrap();
                        cache.keep(fork).unwrap();
                    }
                    3 => {
                        let to = below(len + 1);
                        let reach = cache.reach(id, to).unwrap();
                        assert_eq!(cache.truncate(id, to).unwrap(), reach);
                    }
                    4 => {
                        if let Some(source) = cache.kept().get(below(5)).copied() {
                            cache.replace(id, source).unwrap();
                            assert_eq!(cache.len(id).unwrap(), cache.len(source).unwrap());
                            hits += cache.len(id).unwrap();
                        }
                    }
                    _ => {
                        let count = [1, 1, 30, 90, 200][below(5)];
                        let stage = match below(3) {
                            0 => Stage::Within,
                            1 => Stage::Prompt { end: len + count },
                            _ => Stage::Tentative { kept: len },
                        };
                        extend(&mut cache, &open, id, count, stage);
                    }
                }
                cache.evicted().to_vec().into_iter().for_each(|id| cache.close(id).unwrap());
                check_counts(&cache);
                assert_eq!(cache.open_sequences(), open.len());
            }
            open.into_iter().for_each(|id| cache.close(id).unwrap());
            assert_eq!(cache.kept_pages().0, cache.pages_in_use());
            cache.evict_kept().unwrap();
            check_counts(&cache);
            assert_eq!((cache.pages_in_use(), cache.open_sequences()), (0, 0));
            assert!(cache.states.as_ref().is_none_or(|states| states.has_room(MAX_STATES, usize::MAX)), "a lost state");
        }
        assert!(hits > 1000, "{hits}");
    }
}
