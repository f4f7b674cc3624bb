//! Where each sequence's state lives.
//!
//! In: how many positions a sequence is to grow by. Out: the pages that hold its keys and values. A page holds
//! [`PAGE_POSITIONS`] positions of every attention layer, so a sequence grows page by page, gives pages back when it is
//! truncated, and shares full ones with its forks. This module keeps the tables; the memory behind a page is the
//! backend's, which knows it by [`PageId`]. What recurrent layers keep is in `states`.

mod states;

pub use states::{CHECKPOINTS, RUN_CHECKPOINTS, Stage, StateId, StateUpdate};
use states::{SequenceState, States};

use crate::{
    Error, Result,
    graph::{LayerCache, LayerState},
};

/// Positions in a page.
pub const PAGE_POSITIONS: usize = 64;

/// The format of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheType {
    /// Single precision: 4 bytes an element.
    F32,
    /// Half precision: 2 bytes an element.
    #[default]
    F16,
    /// 8-bit codes with a half-precision scale for 32: 34 bytes for 32 elements.
    Q8_0,
}

impl CacheType {
    /// The bytes of one head's key or value. Floats are filled up to a multiple of 16 elements with zeros, so that
    /// kernels read whole vectors.
    ///
    /// # Errors
    /// [`Error::Argument`] where the head is no whole number of the format's blocks.
    pub fn row_bytes(self, head_dim: usize) -> Result<usize> {
        match self {
            Self::F32 => Ok(head_dim.next_multiple_of(16) * 4),
            Self::F16 => Ok(head_dim.next_multiple_of(16) * 2),
            Self::Q8_0 if head_dim.is_multiple_of(32) => Ok(head_dim / 32 * 34),
            Self::Q8_0 => Err(Error::argument(
                "cache_type",
                format!("q8_0 wants heads of a multiple of 32 elements, the model's have {head_dim}: use f16"),
            )),
        }
    }
}

/// What a page holds: for each attention layer the keys, then the values; within these, head by head. The order of a
/// head's elements is the backend's affair. And what the state of a sequence holds: the floats of each recurrent op.
#[derive(Clone, Debug)]
pub struct CacheLayout {
    /// The attention layers.
    pub layers: Vec<LayerCache>,
    /// The format of keys and values.
    pub cache_type: CacheType,
    /// The byte at which each layer's keys begin in a page; the values follow directly.
    pub offsets: Vec<usize>,
    /// The bytes of one head's key or value in each layer.
    pub row_bytes: Vec<usize>,
    /// Bytes in a page.
    pub page_bytes: usize,
    /// What the recurrent ops keep.
    pub states: Vec<LayerState>,
    /// The byte at which each of them begins in a state.
    pub state_offsets: Vec<usize>,
    /// Bytes in a state; 0 where no op is recurrent.
    pub state_bytes: usize,
}

/// Each op's part of a state begins at a multiple of this many bytes.
const STATE_UNIT: usize = 256;

impl CacheLayout {
    /// The layout for these attention layers and what these recurrent ops keep.
    ///
    /// # Errors
    /// As [`CacheType::row_bytes`].
    pub fn new(layers: &[LayerCache], states: &[LayerState], cache_type: CacheType) -> Result<Self> {
        let mut offsets = Vec::with_capacity(layers.len());
        let mut row_bytes = Vec::with_capacity(layers.len());
        let mut page_bytes = 0;
        for layer in layers {
            let row = cache_type.row_bytes(layer.head_dim)?;
            offsets.push(page_bytes);
            row_bytes.push(row);
            page_bytes += 2 * layer.kv_heads * PAGE_POSITIONS * row;
        }
        let (layers, states) = (layers.to_vec(), states.to_vec());
        let mut state_bytes = 0usize;
        let mut state_offsets = Vec::with_capacity(states.len());
        for state in &states {
            state_offsets.push(state_bytes);
            let bytes = state.rows.saturating_mul(state.width).saturating_mul(size_of::<f32>());
            state_bytes = state_bytes.saturating_add(bytes.div_ceil(STATE_UNIT).saturating_mul(STATE_UNIT));
        }
        Ok(Self { layers, cache_type, offsets, row_bytes, page_bytes, states, state_offsets, state_bytes })
    }

    /// The bytes that one more position of a sequence takes.
    pub fn bytes_per_token(&self) -> usize {
        self.page_bytes / PAGE_POSITIONS
    }
}

/// Names a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageId(u32);

impl PageId {
    /// Its number; pages are numbered from 0 without gaps.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a sequence of a [`KvCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId(usize);

#[derive(Debug, Default)]
struct Sequence {
    len: usize,
    pages: Vec<PageId>,
    state: SequenceState,
}

/// The page tables of all sequences.
#[derive(Debug)]
pub struct KvCache {
    context_length: usize,
    max_pages: usize,
    /// How many sequences hold each page.
    holders: Vec<u32>,
    free: Vec<PageId>,
    sequences: Vec<Option<Sequence>>,
    copies: Vec<(PageId, PageId)>,
    /// Those of recurrent layers, where the model has any.
    states: Option<States>,
}

impl KvCache {
    /// An empty cache whose sequences hold up to `context_length` positions each and `max_pages` pages together.
    pub fn new(context_length: usize, max_pages: usize) -> Self {
        let (holders, free, sequences, copies) = (vec![], vec![], vec![], vec![]);
        Self { context_length, max_pages, holders, free, sequences, copies, states: None }
    }

    /// The same for a model with recurrent layers: up to `max` states of all sequences together, with their checkpoints.
    pub fn with_states(self, max: usize) -> Self {
        Self { states: Some(States::new(max)), ..self }
    }

    /// The most positions that a sequence can hold.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// A new, empty sequence.
    pub fn open(&mut self) -> SequenceId {
        self.insert(Sequence::default())
    }

    /// A new sequence with the positions of `id`. Its full pages are shared; a page that both would write is copied
    /// when one of them grows.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        let of = self.sequences.get(id.0).and_then(Option::as_ref).ok_or_else(not_open)?;
        let state = self.states.as_mut().map(|states| states.fork(&of.state)).unwrap_or_default();
        let twin = Sequence { len: of.len, pages: of.pages.clone(), state };
        for page in &twin.pages {
            self.holders[page.index()] += 1;
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

    /// The pages that hold the sequence's positions, in order.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn pages(&self, id: SequenceId) -> Result<&[PageId]> {
        Ok(&self.get(id)?.pages)
    }

    /// Makes room for `count` more positions and returns the first of them.
    ///
    /// # Errors
    /// [`Error::ContextFull`] past the context's length, [`Error::Memory`] past the page limit; the sequence is then
    /// as it was.
    pub fn extend(&mut self, id: SequenceId, count: usize) -> Result<usize> {
        let (start, held) = self.get(id).map(|sequence| (sequence.len, sequence.pages.len()))?;
        let free = self.context_length - start;
        if count > free {
            return Err(Error::ContextFull { tokens: count, free, context: self.context_length });
        }
        let shared = self.shared_tail(id)?.filter(|_| count > 0);
        let wanted = (start + count).div_ceil(PAGE_POSITIONS) - held + usize::from(shared.is_some());
        self.check_room(wanted)?;
        if let Some(old) = shared {
            let new = self.take_page();
            self.holders[old.index()] -= 1;
            self.copies.push((old, new));
            self.get_mut(id)?.pages[held - 1] = new;
        }
        let added: Vec<_> = (usize::from(shared.is_some())..wanted).map(|_| self.take_page()).collect();
        let sequence = self.get_mut(id)?;
        sequence.pages.extend(added);
        sequence.len += count;
        Ok(start)
    }

    /// Forgets every position from `len` on, and with recurrent layers those before it from the nearest checkpoint on;
    /// a `len` past the end changes nothing. Returns how many positions are left.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<usize> {
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        sequence.len = match &mut self.states {
            Some(states) => states.rewind(&mut sequence.state, len.min(sequence.len)),
            None => sequence.len.min(len),
        };
        let len = sequence.len;
        let kept = sequence.len.div_ceil(PAGE_POSITIONS);
        for page in sequence.pages.split_off(kept) {
            let holders = &mut self.holders[page.index()];
            *holders -= 1;
            if *holders == 0 {
                self.free.push(page);
            }
        }
        Ok(len)
    }

    /// What the next run, which takes the sequence to position `to`, does with its state, where the model has recurrent
    /// layers. The runs of a sequence take its state to its length one after the other.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open, and past the limit of states.
    pub fn advance(&mut self, id: SequenceId, to: usize, stage: Stage) -> Result<Option<StateUpdate>> {
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)?;
        self.states.as_mut().map(|states| states.advance(&mut sequence.state, to, stage)).transpose()
    }

    /// The page copies that must be made, in order, before the next step writes.
    pub fn take_copies(&mut self) -> Vec<(PageId, PageId)> {
        std::mem::take(&mut self.copies)
    }

    /// The last page of the sequence, if it is part full and another sequence holds it too.
    fn shared_tail(&self, id: SequenceId) -> Result<Option<PageId>> {
        let sequence = self.get(id)?;
        let tail = sequence.pages.last().copied().filter(|_| !sequence.len.is_multiple_of(PAGE_POSITIONS));
        Ok(tail.filter(|page| self.holders[page.index()] > 1))
    }

    fn check_room(&self, wanted: usize) -> Result<()> {
        let needed = self.holders.len() - self.free.len() + wanted;
        if needed <= self.max_pages {
            return Ok(());
        }
        Err(Error::Argument {
            name: "memory_limit",
            what: format!("the cache would need {needed} pages of {PAGE_POSITIONS} tokens, {} fit", self.max_pages),
        })
    }

    fn take_page(&mut self) -> PageId {
        let page = self.free.pop().unwrap_or_else(|| {
            self.holders.push(0);
            PageId(self.holders.len() as u32 - 1)
        });
        self.holders[page.index()] = 1;
        page
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

    fn get_mut(&mut self, id: SequenceId) -> Result<&mut Sequence> {
        self.sequences.get_mut(id.0).and_then(Option::as_mut).ok_or_else(not_open)
    }
}

fn not_open() -> Error {
    Error::argument("sequence", "is not open in this cache")
}
