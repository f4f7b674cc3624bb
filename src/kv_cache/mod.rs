//! Manages the paged KV cache and the recurrent states of all sequences.
//!
//! A page holds [`PAGE_POSITIONS`] positions of a group of attention layers. A sequence grows page
//! by page, releases pages when it is truncated, and shares full pages with its forks. Layers with
//! the same sliding window form a group, which releases pages outside of the window. This module
//! keeps the page tables; the backend owns the memory of a page and identifies it by [`PageId`].
//! `states` manages the states of recurrent layers.

mod kept;
mod layout;
mod pages;
mod parts;
mod room;
mod states;

pub use layout::{CacheLayout, CacheType, LayerPlace, PageGroup};
pub use pages::{PageId, PageTable};
pub use parts::{CachePart, SequenceExtent, SequencePart};
pub use room::CacheRoom;
pub use states::{CHECKPOINTS, RUN_CHECKPOINTS, SEQUENCE_STATES, Stage, StateId, StateUpdate, tentative_offsets};

use kept::KeptSequences;
use pages::PagePool;
use states::{SequenceState, States};

use crate::{Error, Result};

/// Number of positions in a page.
pub const PAGE_POSITIONS: usize = 64;

/// Number of positions before the last prompt's end to which truncation is cheap: templates append
/// an assistant header that the next prompt may not contain.
const PROMPT_END_MARGIN: usize = 16;

/// Number of positions before the end of a sequence to which truncation is cheap: windows keep that
/// many more positions than attention needs.
const TRUNCATION_MARGIN: usize = 256;

/// Returns the maximum number of pages of a sequence in layers with a window: the pages that the
/// next step reads and writes, and the pages in the window of the last prompt's end.
fn max_window_pages(window: usize, context_length: usize, max_tokens: usize) -> usize {
    let pages = |margin: usize| window.saturating_add(margin).div_ceil(PAGE_POSITIONS).saturating_add(1);
    let step_pages = pages(max_tokens.saturating_add(TRUNCATION_MARGIN));
    let prompt_end_pages = pages(PROMPT_END_MARGIN);
    context_length.div_ceil(PAGE_POSITIONS).min(step_pages.saturating_add(prompt_end_pages))
}

/// Identifies a sequence of a [`Decoder`](crate::Decoder).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId(usize);

#[derive(Debug, Default)]
struct Sequence {
    len: usize,
    /// Page table of each group.
    tables: Vec<PageTable>,
    /// End position of the last prompt.
    prompt_end: usize,
    state: SequenceState,
}

/// The page tables and recurrent states of all sequences.
#[derive(Debug)]
pub struct KvCache {
    context_length: usize,
    max_bytes: u64,
    groups: Vec<PageGroup>,
    /// Page pool of each group.
    pools: Vec<PagePool>,
    sequences: Vec<Option<Sequence>>,
    /// Source and destination of each page copy that the next step needs.
    copies: Vec<(PageId, PageId)>,
    /// States of recurrent layers, if the model has any.
    states: Option<States>,
    /// Whether the next step also writes the last position of a sequence.
    rewrites_last: bool,
    kept: KeptSequences,
}

impl KvCache {
    /// Creates an empty cache whose sequences have up to `context_length` positions each.
    pub fn new(layout: &CacheLayout, context_length: usize) -> Self {
        Self {
            context_length,
            max_bytes: u64::MAX,
            groups: layout.groups.clone(),
            pools: (0..layout.groups.len()).map(PagePool::new).collect(),
            sequences: vec![],
            copies: vec![],
            states: (layout.state_bytes > 0).then(|| States::new(usize::MAX, layout.state_bytes)),
            rewrites_last: false,
            kept: KeptSequences::default(),
        }
    }

    /// Lets the next step of a sequence also write the last position that it has, so that the page
    /// of that position is not shared either.
    #[must_use]
    pub fn rewriting_last(self) -> Self {
        Self { rewrites_last: true, ..self }
    }

    /// Limits the pages of all sequences to `bytes`, and the recurrent states of all sequences and
    /// checkpoints to `states`.
    #[must_use]
    pub fn with_limits(self, bytes: u64, states: usize) -> Self {
        Self { max_bytes: bytes, states: self.states.map(|unlimited| unlimited.with_max(states)), ..self }
    }

    /// Returns the maximum number of positions of a sequence.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// Returns the groups of layers with the same window.
    pub fn groups(&self) -> &[PageGroup] {
        &self.groups
    }

    /// Returns whether sequences have states of recurrent layers.
    pub fn is_recurrent(&self) -> bool {
        self.states.is_some()
    }

    /// Returns the size in bytes of all pages in use.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().zip(&self.pools).map(|(group, pool)| (pool.in_use() * group.page_bytes) as u64).sum()
    }

    /// Returns the number of pages in use.
    pub fn pages_in_use(&self) -> usize {
        self.pools.iter().map(PagePool::in_use).sum()
    }

    /// Returns the number of open sequences.
    pub fn open_sequences(&self) -> usize {
        self.sequences.iter().flatten().count() - self.kept().len() - self.evicted().len()
    }

    /// Opens a new, empty sequence.
    pub fn open(&mut self) -> SequenceId {
        let tables = vec![PageTable::default(); self.groups.len()];
        self.insert(Sequence { tables, ..Sequence::default() })
    }

    /// Opens a new sequence with the positions of `id`. Pages are shared; a partly filled page is
    /// copied when one of the sequences grows.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        let source = self.sequences.get(id.0).and_then(Option::as_ref).ok_or_else(not_open)?;
        let state = self.states.as_mut().map(|states| states.fork(&source.state)).unwrap_or_default();
        let fork = Sequence { len: source.len, tables: source.tables.clone(), prompt_end: source.prompt_end, state };
        for (table, pool) in fork.tables.iter().zip(&mut self.pools) {
            table.pages().for_each(|page| pool.share(page));
        }
        Ok(self.insert(fork))
    }

    /// Closes a sequence and releases its pages.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn close(&mut self, id: SequenceId) -> Result<()> {
        self.get(id)?;
        self.forget(id);
        self.truncate(id, 0)?;
        self.sequences[id.0] = None;
        Ok(())
    }

    /// Returns the number of positions of the sequence.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn len(&self, id: SequenceId) -> Result<usize> {
        Ok(self.get(id)?.len)
    }

    /// Returns the sequence's page table for each group of layers.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn pages(&self, id: SequenceId) -> Result<&[PageTable]> {
        Ok(&self.get(id)?.tables)
    }

    /// Adds `count` positions for one step and returns the first of them. Releases pages outside of
    /// the step's attention window.
    ///
    /// # Errors
    /// [`Error::ContextFull`] beyond the context length, [`Error::Argument`] beyond the limit in
    /// bytes or for a sequence that is not open. The length of the sequence is then unchanged.
    pub fn extend(&mut self, id: SequenceId, count: usize) -> Result<usize> {
        let start = self.get(id)?.len;
        self.check_length(start, count)?;
        let pages = (start + count).div_ceil(PAGE_POSITIONS) - start.div_ceil(PAGE_POSITIONS);
        if pages > 0 {
            self.release_unseen(id)?;
        }
        if count > 0 {
            self.free_pages(id, pages)?;
        }
        let shared = self.shared_tails(id).filter(|_| count > 0).collect::<Vec<_>>();
        self.check_room(pages, &shared)?;
        let Self { pools, sequences, copies, .. } = self;
        let sequence = sequences[id.0].as_mut().ok_or_else(not_open)?;
        for old in shared {
            let pool = &mut pools[old.group()];
            pool.release(old);
            let new = pool.allocate();
            copies.push((old, new));
            sequence.tables[old.group()].replace_last(new);
        }
        for (table, pool) in sequence.tables.iter_mut().zip(pools) {
            (0..pages).for_each(|_| table.push(pool.allocate()));
        }
        sequence.len += count;
        Ok(start)
    }

    /// Shortens the sequence to at most `len` positions, and returns its new length.
    ///
    /// With recurrent layers, the new length is that of the last checkpoint up to `len`. If pages
    /// in the attention window of the new length were released, it is 0. A `len` beyond the end
    /// changes nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<usize> {
        let len = self.reach(id, len)?;
        let Self { pools, sequences, states, .. } = self;
        let sequence = sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        if let Some(states) = states {
            states.rewind(&mut sequence.state, len);
        }
        (sequence.len, sequence.prompt_end) = (len, sequence.prompt_end.min(len));
        for (table, pool) in sequence.tables.iter_mut().zip(pools) {
            table.remove_after(len).into_iter().for_each(|page| pool.release(page));
        }
        Ok(len)
    }

    /// Advances the sequence's recurrent state to position `to` for the next run, and returns the
    /// states that the run reads and writes; `None` without recurrent layers. Runs are in order of
    /// positions, and the last one ends at the length of the sequence.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open, or beyond the limit of states.
    pub fn advance(&mut self, id: SequenceId, to: usize, stage: Stage) -> Result<Option<StateUpdate>> {
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        if let Stage::Prompt { end } = stage {
            sequence.prompt_end = end;
        }
        let Some(states) = &mut self.states else { return Ok(None) };
        states.release_unneeded(&mut sequence.state, to, stage);
        self.free_states(id, to, stage)?;
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        self.states.as_mut().map(|states| states.advance(&mut sequence.state, to, stage)).transpose()
    }

    /// Ends the preparation of a step. Returns the source and destination of the page copies that
    /// the step must make, in order, before it writes.
    pub fn take_copies(&mut self) -> Vec<(PageId, PageId)> {
        self.states.iter_mut().for_each(States::end_step);
        std::mem::take(&mut self.copies)
    }

    /// Releases the pages outside of the attention window of the sequence's end and of the last
    /// prompt's end, including the margins for truncation.
    fn release_unseen(&mut self, id: SequenceId) -> Result<()> {
        let Self { groups, pools, sequences, .. } = self;
        let sequence = sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        for ((table, group), pool) in sequence.tables.iter_mut().zip(groups).zip(pools) {
            if group.window.is_some() {
                let window = |end: usize, margin: usize| group.first_seen(end.saturating_sub(margin))..end;
                let end = window(sequence.len, TRUNCATION_MARGIN);
                let prompt_end = window(sequence.prompt_end, PROMPT_END_MARGIN);
                table.remove_outside(&[end, prompt_end]).into_iter().for_each(|page| pool.release(page));
            }
        }
        Ok(())
    }

    /// Returns the last page of each group if the next step writes to it and it is shared with
    /// another sequence.
    fn shared_tails(&self, id: SequenceId) -> impl Iterator<Item = PageId> {
        let sequence = self.sequences.get(id.0).and_then(Option::as_ref);
        let is_written = |len: usize| !len.is_multiple_of(PAGE_POSITIONS) || (self.rewrites_last && len > 0);
        let written = sequence.filter(|sequence| is_written(sequence.len));
        let tails = written.into_iter().flat_map(|s| s.tables.iter().filter_map(|table| table.page(s.len - 1)));
        tails.filter(|page| self.pools[page.group()].is_shared(*page))
    }

    fn check_length(&self, start: usize, count: usize) -> Result<()> {
        let free = self.context_length - start;
        if count <= free {
            return Ok(());
        }
        Err(Error::ContextFull { tokens: count, free, context: self.context_length, trained: None })
    }

    fn check_room(&self, pages: usize, shared: &[PageId]) -> Result<()> {
        let page_bytes = |group: usize| self.groups[group].page_bytes as u64;
        let new: u64 = (0..self.groups.len()).map(|group| (pages as u64).saturating_mul(page_bytes(group))).sum();
        let copied: u64 = shared.iter().map(|page| page_bytes(page.group())).sum();
        self.check_bytes(new.saturating_add(copied))
    }

    /// Checks that the limit has room for `new` bytes of pages.
    fn check_bytes(&self, new: u64) -> Result<()> {
        let needed = self.bytes().saturating_add(new);
        if needed <= self.max_bytes {
            return Ok(());
        }
        Err(Error::Memory { what: "the KV cache", needed, limit: self.max_bytes })
    }

    fn insert(&mut self, sequence: Sequence) -> SequenceId {
        let slot = self.sequences.iter().position(Option::is_none).unwrap_or_else(|| {
            self.sequences.push(None);
            self.sequences.len() - 1
        });
        self.sequences[slot] = Some(sequence);
        SequenceId(slot)
    }

    fn get(&self, id: SequenceId) -> Result<&Sequence> {
        self.sequences.get(id.0).and_then(Option::as_ref).ok_or_else(not_open)
    }
}

impl Sequence {
    /// Returns `len` if the table has all pages in the attention window of that length, else 0.
    fn reachable(&self, groups: &[PageGroup], len: usize) -> usize {
        let mut tables = self.tables.iter().zip(groups);
        // Includes the page of the last position, since the next position may belong to it.
        let has_window = |(table, group): (&PageTable, &PageGroup)| {
            table.holds(group.first_seen(len).min(len.saturating_sub(1))..len)
        };
        if tables.all(has_window) { len } else { 0 }
    }
}

fn not_open() -> Error {
    Error::argument("sequence", "is not open in this cache: pass an id that `open` or `fork` returned")
}
