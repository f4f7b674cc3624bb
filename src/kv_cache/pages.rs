//! Manages the pages of a group of layers: the page tables of sequences and the pool of free pages.

use std::{cmp::Reverse, ops::Range};

use super::PAGE_POSITIONS;

/// Identifies a page of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    group: u32,
    index: u32,
}

impl PageId {
    /// Returns the index of the page's group.
    pub fn group(self) -> usize {
        self.group as usize
    }

    /// Returns the page's index in its group. Pages are numbered from 0 without gaps.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// The pages of a sequence in one group of layers, ordered by position. Pages outside of the
/// attention window may have been released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTable(Vec<Option<PageId>>);

impl PageTable {
    /// Returns the page of each range of [`PAGE_POSITIONS`] positions, or `None` if it was
    /// released.
    pub fn entries(&self) -> &[Option<PageId>] {
        &self.0
    }

    /// Returns an iterator over all pages that were not released.
    pub fn pages(&self) -> impl Iterator<Item = PageId> {
        self.0.iter().copied().flatten()
    }

    /// Returns the number of positions that the table covers, including released pages.
    pub fn room(&self) -> usize {
        self.0.len() * PAGE_POSITIONS
    }

    /// Returns whether the table has the pages of all `positions`.
    pub fn holds(&self, positions: Range<usize>) -> bool {
        let pages = positions.start / PAGE_POSITIONS..positions.end.div_ceil(PAGE_POSITIONS);
        self.0.get(pages).is_some_and(|pages| pages.iter().all(Option::is_some))
    }

    /// Returns the page of a position, or `None` if it was released or does not exist.
    pub fn page(&self, position: usize) -> Option<PageId> {
        self.0.get(position / PAGE_POSITIONS).copied().flatten()
    }

    pub(super) fn push(&mut self, page: PageId) {
        self.0.push(Some(page));
    }

    pub(super) fn replace_last(&mut self, page: PageId) {
        if let Some(last) = self.0.last_mut() {
            *last = Some(page);
        }
    }

    /// Removes and returns all pages after the first `len` positions.
    pub(super) fn remove_after(&mut self, len: usize) -> Vec<PageId> {
        let kept = len.div_ceil(PAGE_POSITIONS).min(self.0.len());
        self.0.split_off(kept).into_iter().flatten().collect()
    }

    /// Removes and returns the pages that contain no position of `ranges`.
    pub(super) fn remove_outside(&mut self, ranges: &[Range<usize>]) -> Vec<PageId> {
        let overlaps = |start: usize| ranges.iter().any(|r| r.start < start + PAGE_POSITIONS && start < r.end);
        let pages = self.0.iter_mut().enumerate().filter(|(index, _)| !overlaps(index * PAGE_POSITIONS));
        pages.filter_map(|(_, page)| page.take()).collect()
    }
}

impl FromIterator<Option<PageId>> for PageTable {
    fn from_iter<I: IntoIterator<Item = Option<PageId>>>(pages: I) -> Self {
        Self(pages.into_iter().collect())
    }
}

/// The pages of a group, with reference counts.
#[derive(Debug)]
pub(super) struct PagePool {
    group: u32,
    /// Number of sequences that use each page.
    ref_counts: Vec<u32>,
    /// Number of these that are only kept for later ones.
    kept_counts: Vec<u32>,
    /// Number of pages that only kept sequences use.
    only_kept: usize,
    free: Vec<PageId>,
}

impl PagePool {
    pub fn new(group: usize) -> Self {
        Self { group: group as u32, ref_counts: vec![], kept_counts: vec![], only_kept: 0, free: vec![] }
    }

    /// Returns the number of pages in use.
    pub fn in_use(&self) -> usize {
        self.ref_counts.len() - self.free.len()
    }

    /// Returns the number of pages that have memory, free ones included.
    pub fn len(&self) -> usize {
        self.ref_counts.len()
    }

    /// Returns the number of free pages that have memory.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of sequences that use a page.
    pub fn ref_count(&self, page: PageId) -> u32 {
        self.ref_counts[page.index()]
    }

    pub fn is_shared(&self, page: PageId) -> bool {
        self.ref_count(page) > 1
    }

    /// Returns a free page, or adds one, with a reference count of 1.
    pub fn allocate(&mut self) -> PageId {
        let page = self.free.pop().unwrap_or_else(|| {
            self.ref_counts.push(0);
            self.kept_counts.push(0);
            PageId { group: self.group, index: self.ref_counts.len() as u32 - 1 }
        });
        self.ref_counts[page.index()] = 1;
        page
    }

    /// Lets the first of the free pages be allocated first: a device may lack memory for the last.
    pub fn prefer_first(&mut self) {
        self.free.sort_unstable_by_key(|page| Reverse(page.index));
    }

    /// Adds a reference to a page.
    pub fn share(&mut self, page: PageId) {
        self.only_kept -= usize::from(self.is_only_kept(page));
        self.ref_counts[page.index()] += 1;
    }

    /// Returns the number of pages that only kept sequences use.
    pub fn only_kept(&self) -> usize {
        self.only_kept
    }

    fn is_only_kept(&self, page: PageId) -> bool {
        let kept = self.kept_counts[page.index()];
        kept > 0 && kept == self.ref_count(page)
    }

    /// Counts a sequence that uses a page as kept.
    pub fn keep(&mut self, page: PageId) {
        self.kept_counts[page.index()] += 1;
        self.only_kept += usize::from(self.is_only_kept(page));
    }

    /// Counts a sequence that uses a page as kept no more.
    pub fn end_keeping(&mut self, page: PageId) {
        self.only_kept -= usize::from(self.is_only_kept(page));
        self.kept_counts[page.index()] -= 1;
    }

    /// Drops a reference to a page, which is free after the last one.
    pub fn release(&mut self, page: PageId) {
        let count = &mut self.ref_counts[page.index()];
        *count -= 1;
        if *count == 0 {
            self.free.push(page);
        }
        self.only_kept += usize::from(self.is_only_kept(page));
    }
}
