//! Where each sequence's state lives.
//!
//! In: how many positions a sequence is to grow by. Out: the pages that hold its keys and values. A page holds
//! [`PAGE_POSITIONS`] positions of the attention layers of a group, so a sequence grows page by page, gives pages back when
//! it is truncated, and shares full ones with its forks. Layers that see no further back than a window are a group of
//! their own, which gives back what is out of sight. This module keeps the tables; the memory behind a page is the
//! backend's, which knows it by [`PageId`]. What recurrent layers keep is in `states`.

mod layout;
mod pages;
mod states;

pub use layout::{CacheLayout, CacheType, LayerPlace, PageGroup};
pub use pages::{PageId, PageTable};
pub use states::{CHECKPOINTS, RUN_CHECKPOINTS, Stage, StateId, StateUpdate};

use pages::Pool;
use states::{SequenceState, States};

use crate::{Error, Result};

/// Positions in a page.
pub const PAGE_POSITIONS: usize = 64;

/// How far before a prompt's end sequences must be able to go back to: templates end a prompt with a head of the answer that
/// the next prompt may lack.
const BEFORE_END: usize = 16;

/// How far sequences can go back from anywhere without more than they had before: so many positions out of sight are kept.
const SLACK: usize = 256;

/// The most pages that a sequence has in layers with a window: those that the next step sees and fills, and those that the
/// last prompt's end saw.
fn most_pages(window: usize, context_length: usize, max_tokens: usize) -> usize {
    let pages = |positions: usize| positions.div_ceil(PAGE_POSITIONS).saturating_add(1);
    let [now, then] = [max_tokens.saturating_add(SLACK), BEFORE_END].map(|more| pages(window.saturating_add(more)));
    context_length.div_ceil(PAGE_POSITIONS).min(now.saturating_add(then))
}

/// Names a sequence of a [`KvCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId(usize);

#[derive(Debug, Default)]
struct Sequence {
    len: usize,
    /// One for each group.
    tables: Vec<PageTable>,
    /// Where the last prompt ends.
    prompt_end: usize,
    state: SequenceState,
}

/// The page tables of all sequences.
#[derive(Debug)]
pub struct KvCache {
    context_length: usize,
    max_bytes: u64,
    groups: Vec<PageGroup>,
    /// The pages of each group.
    pools: Vec<Pool>,
    sequences: Vec<Option<Sequence>>,
    copies: Vec<(PageId, PageId)>,
    /// Those of recurrent layers, where the model has any.
    states: Option<States>,
}

impl KvCache {
    /// An empty cache whose sequences hold up to `context_length` positions each.
    pub fn new(layout: &CacheLayout, context_length: usize) -> Self {
        Self {
            context_length,
            max_bytes: u64::MAX,
            groups: layout.groups.clone(),
            pools: (0..layout.groups.len()).map(Pool::new).collect(),
            sequences: vec![],
            copies: vec![],
            states: (layout.state_bytes > 0).then(|| States::new(usize::MAX)),
        }
    }

    /// The same with up to `bytes` of pages and `states` states of recurrent layers, all sequences and their checkpoints
    /// together.
    #[must_use]
    pub fn with_limits(self, bytes: u64, states: usize) -> Self {
        Self { max_bytes: bytes, states: self.states.map(|_| States::new(states)), ..self }
    }

    /// The most positions that a sequence can hold.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// The bytes of all pages that are held.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().zip(&self.pools).map(|(group, pool)| (pool.in_use() * group.page_bytes) as u64).sum()
    }

    /// A new, empty sequence.
    pub fn open(&mut self) -> SequenceId {
        let tables = vec![PageTable::default(); self.groups.len()];
        self.insert(Sequence { tables, ..Sequence::default() })
    }

    /// A new sequence with the positions of `id`. Its full pages are shared; a page that both would write is copied
    /// when one of them grows.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        let of = self.sequences.get(id.0).and_then(Option::as_ref).ok_or_else(not_open)?;
        let state = self.states.as_mut().map(|states| states.fork(&of.state)).unwrap_or_default();
        let twin = Sequence { len: of.len, tables: of.tables.clone(), prompt_end: of.prompt_end, state };
        for (table, pool) in twin.tables.iter().zip(&mut self.pools) {
            table.pages().for_each(|page| pool.share(page));
        }
        Ok(self.insert(twin))
    }

    /// Forgets a sequence and frees its pages.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn close(&mut self, id: SequenceId) -> Result<()> {
        self.truncate(id, 0)?;
        self.sequences[id.0] = None;
        Ok(())
    }

    /// How many positions the sequence holds.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn len(&self, id: SequenceId) -> Result<usize> {
        Ok(self.get(id)?.len)
    }

    /// The pages that hold the sequence's positions, a table for each group of layers.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn pages(&self, id: SequenceId) -> Result<&[PageTable]> {
        Ok(&self.get(id)?.tables)
    }

    /// Makes room for `count` more positions and returns the first of them. They are those of one step: pages that it does
    /// not see may be given back.
    ///
    /// # Errors
    /// [`Error::ContextFull`] past the context's length, [`Error::Argument`] past the limit of bytes; the sequence is then
    /// no shorter.
    pub fn extend(&mut self, id: SequenceId, count: usize) -> Result<usize> {
        let start = self.get(id)?.len;
        self.check_length(start, count)?;
        let pages = (start + count).div_ceil(PAGE_POSITIONS) - start.div_ceil(PAGE_POSITIONS);
        if pages > 0 {
            self.give_back(id)?;
        }
        let shared = self.shared_tails(id).filter(|_| count > 0).collect::<Vec<_>>();
        self.check_room(pages, &shared)?;
        let Self { pools, sequences, copies, .. } = self;
        let sequence = sequences[id.0].as_mut().ok_or_else(not_open)?;
        for old in shared {
            let pool = &mut pools[old.group()];
            pool.release(old);
            let new = pool.take();
            copies.push((old, new));
            sequence.tables[old.group()].replace_last(new);
        }
        for (table, pool) in sequence.tables.iter_mut().zip(pools) {
            (0..pages).for_each(|_| table.push(pool.take()));
        }
        sequence.len += count;
        Ok(start)
    }

    /// Forgets every position from `len` on, and with recurrent layers those before it from the nearest checkpoint on; or
    /// all, where pages were given back that whoever goes on from there would see. A `len` past the end changes nothing.
    /// Returns how many positions are left.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<usize> {
        let Self { groups, pools, sequences, states, .. } = self;
        let sequence = sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        let mut len = sequence.reachable(groups, len.min(sequence.len));
        if let Some(states) = states {
            let at = states.rewind(&mut sequence.state, len);
            len = sequence.reachable(groups, at);
            states.rewind(&mut sequence.state, len);
        }
        (sequence.len, sequence.prompt_end) = (len, sequence.prompt_end.min(len));
        for (table, pool) in sequence.tables.iter_mut().zip(pools) {
            table.take_after(len).into_iter().for_each(|page| pool.release(page));
        }
        Ok(len)
    }

    /// Says that the next run takes the sequence to position `to`, and what that run does with its state where the model
    /// has recurrent layers. The runs of a sequence take its state to its length one after the other.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open, and past the limit of states.
    pub fn advance(&mut self, id: SequenceId, to: usize, stage: Stage) -> Result<Option<StateUpdate>> {
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        if let Stage::Prompt { end } = stage {
            sequence.prompt_end = end;
        }
        self.states.as_mut().map(|states| states.advance(&mut sequence.state, to, stage)).transpose()
    }

    /// Ends what is asked for a step: the page copies that must be made, in order, before it writes.
    pub fn take_copies(&mut self) -> Vec<(PageId, PageId)> {
        self.states.iter_mut().for_each(States::end_step);
        std::mem::take(&mut self.copies)
    }

    /// Gives back the pages that the sequence neither sees from its end on, nor would see were it to go back a little or to
    /// its last prompt's end.
    fn give_back(&mut self, id: SequenceId) -> Result<()> {
        let Self { groups, pools, sequences, .. } = self;
        let sequence = sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        for ((table, group), pool) in sequence.tables.iter_mut().zip(groups).zip(pools) {
            if group.window.is_some() {
                let now = group.first_seen(sequence.len.saturating_sub(SLACK))..sequence.len;
                let end = sequence.prompt_end;
                let then = group.first_seen(end.saturating_sub(BEFORE_END))..end;
                table.take_outside(&[now, then]).into_iter().for_each(|page| pool.release(page));
            }
        }
        Ok(())
    }

    /// The last page of each group, where it is part full and another sequence holds it too.
    fn shared_tails(&self, id: SequenceId) -> impl Iterator<Item = PageId> {
        let sequence = self.sequences.get(id.0).and_then(Option::as_ref);
        let part_full = sequence.filter(|sequence| !sequence.len.is_multiple_of(PAGE_POSITIONS));
        let tails = part_full.into_iter().flat_map(|s| s.tables.iter().filter_map(|table| table.page(s.len)));
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
        let of = |group: usize| self.groups[group].page_bytes as u64;
        let new: u64 = (0..self.groups.len()).map(|group| (pages as u64).saturating_mul(of(group))).sum();
        let copied: u64 = shared.iter().map(|page| of(page.group())).sum();
        let needed = self.bytes().saturating_add(new).saturating_add(copied);
        if needed <= self.max_bytes {
            return Ok(());
        }
        let what = format!("the cache would need {needed} bytes, {} fit", self.max_bytes);
        Err(Error::argument("memory_limit", what))
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
    /// `len`, where the sequence has the pages that go with that length; else none.
    fn reachable(&self, groups: &[PageGroup], len: usize) -> usize {
        let mut tables = self.tables.iter().zip(groups);
        // The page that it ends within, too: the next position may go there.
        let has = |(table, group): (&PageTable, &PageGroup)| {
            table.holds(group.first_seen(len).min(len.saturating_sub(1))..len)
        };
        if tables.all(has) { len } else { 0 }
    }
}

fn not_open() -> Error {
    Error::argument("sequence", "is not open in this cache")
}
