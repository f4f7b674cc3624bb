//! The pages of a group of layers: which of them hold a sequence, and which are free.

use std::ops::Range;

use super::PAGE_POSITIONS;

/// Names a page of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    group: u32,
    index: u32,
}

impl PageId {
    /// The number of its group.
    pub fn group(self) -> usize {
        self.group as usize
    }

    /// Its number in the group; pages are numbered from 0 without gaps.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// The pages that hold a sequence in the layers of one group, in the order of its positions; none where a page was given
/// back, as nobody sees it any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTable(Vec<Option<PageId>>);

impl PageTable {
    /// The page of each [`PAGE_POSITIONS`] positions.
    pub fn entries(&self) -> &[Option<PageId>] {
        &self.0
    }

    /// The pages that there are.
    pub fn pages(&self) -> impl Iterator<Item = PageId> {
        self.0.iter().copied().flatten()
    }

    /// How many positions it reaches.
    pub fn room(&self) -> usize {
        self.0.len() * PAGE_POSITIONS
    }

    /// Whether it has the pages of all these positions.
    pub fn holds(&self, positions: Range<usize>) -> bool {
        let pages = positions.start / PAGE_POSITIONS..positions.end.div_ceil(PAGE_POSITIONS);
        self.0.get(pages).is_some_and(|pages| pages.iter().all(Option::is_some))
    }

    /// The page of a position.
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

    /// Takes out every page after those of the first `len` positions.
    pub(super) fn take_after(&mut self, len: usize) -> Vec<PageId> {
        let kept = len.div_ceil(PAGE_POSITIONS).min(self.0.len());
        self.0.split_off(kept).into_iter().flatten().collect()
    }

    /// Takes out the pages that have no position of these ranges.
    pub(super) fn take_outside(&mut self, ranges: &[Range<usize>]) -> Vec<PageId> {
        let wanted = |first: usize| ranges.iter().any(|r| r.start < first + PAGE_POSITIONS && first < r.end);
        let pages = self.0.iter_mut().enumerate().filter(|(index, _)| !wanted(index * PAGE_POSITIONS));
        pages.filter_map(|(_, page)| page.take()).collect()
    }
}

impl FromIterator<Option<PageId>> for PageTable {
    fn from_iter<I: IntoIterator<Item = Option<PageId>>>(pages: I) -> Self {
        Self(pages.into_iter().collect())
    }
}

/// All pages of a group.
#[derive(Debug)]
pub(super) struct Pool {
    group: u32,
    /// How many sequences hold each page.
    holders: Vec<u32>,
    free: Vec<PageId>,
}

impl Pool {
    pub fn new(group: usize) -> Self {
        Self { group: group as u32, holders: vec![], free: vec![] }
    }

    /// How many pages are held.
    pub fn in_use(&self) -> usize {
        self.holders.len() - self.free.len()
    }

    pub fn is_shared(&self, page: PageId) -> bool {
        self.holders[page.index()] > 1
    }

    pub fn take(&mut self) -> PageId {
        let page = self.free.pop().unwrap_or_else(|| {
            self.holders.push(0);
            PageId { group: self.group, index: self.holders.len() as u32 - 1 }
        });
        self.holders[page.index()] = 1;
        page
    }

    pub fn share(&mut self, page: PageId) {
        self.holders[page.index()] += 1;
    }

    pub fn release(&mut self, page: PageId) {
        let holders = &mut self.holders[page.index()];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }
}
