//! Manages the states of recurrent layers: fixed-size states, which unlike keys and values cannot
//! be truncated at a position.
//!
//! A sequence is truncated to a checkpoint, which is a state stored at an earlier position.
//! Checkpoints are placed where truncation is likely: before a prompt's last token, for another
//! answer to the same prompt; a few tokens before that, since templates append an assistant header
//! that the next prompt may not contain; and at intervals within long texts. Each sequence has a
//! few checkpoints, fewer at earlier positions.
//!
//! Sequences and checkpoints share states by reference counts. A run reads one state and can write
//! another, so neither forks nor truncation copy a state.

use super::PROMPT_END_MARGIN;
use crate::{Error, Result};

/// Maximum number of checkpoints of a sequence.
pub const CHECKPOINTS: usize = 8;

/// Maximum number of states of a sequence: the current one, the checkpoints, and the states within
/// a run of drafted tokens, for which checkpoints make room.
pub const SEQUENCE_STATES: usize = 2 + CHECKPOINTS;

/// Distance in positions between checkpoints that are not at a prompt's end.
const INTERVAL: usize = 512;

/// Identifies a state, which covers all recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId(u32);

impl StateId {
    /// Returns the index of the state. States are numbered from 0 without gaps.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Maximum number of checkpoints of one run.
pub const RUN_CHECKPOINTS: usize = 3;

/// The role of a run's tokens in their sequence, which determines the checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Tokens without a special role, such as generated ones.
    Within,
    /// Tokens of a prompt of several tokens.
    Prompt {
        /// End position of the prompt.
        end: usize,
    },
    /// Tokens of which the last ones may be discarded.
    Tentative {
        /// The first position to which the sequence may be truncated: at the run's start or within
        /// the run.
        kept: usize,
    },
}

/// The states that a run reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUpdate {
    /// State before the run; `None` at the start of a sequence, for a state of zeros.
    pub from: Option<StateId>,
    /// Destination of the state after the run; can be the same as `from`.
    pub to: StateId,
    /// Up to [`RUN_CHECKPOINTS`] checkpoints within the run, in order: a position, and the
    /// destination of the state before that position.
    pub checkpoints: Vec<(usize, StateId)>,
}

impl StateUpdate {
    /// Returns an iterator over all states in the update.
    pub fn ids(&self) -> impl Iterator<Item = StateId> {
        self.checkpoints.iter().map(|(_, id)| *id).chain(self.from).chain([self.to])
    }
}

/// A sequence's states.
#[derive(Debug, Default)]
pub(super) struct SequenceState {
    /// Number of positions that the state covers.
    position: usize,
    /// State at `position`; `None` for an empty sequence.
    current: Option<StateId>,
    /// Positions and states before and within the last run, in order, if its tokens may be
    /// discarded.
    tentative: Vec<(usize, StateId)>,
    /// Positions and states of the checkpoints, in order, at most `position`.
    checkpoints: Vec<(usize, StateId)>,
}

impl SequenceState {
    /// Returns the positions and states of the checkpoints, in order.
    pub fn checkpoints(&self) -> &[(usize, StateId)] {
        &self.checkpoints
    }

    /// Returns the states of the checkpoints, and the current state unless it is that of a
    /// checkpoint.
    pub fn distinct_ids(&self) -> impl Iterator<Item = StateId> {
        let last = self.checkpoints.last().filter(|(position, _)| *position == self.position);
        let current = self.current.filter(|_| last.is_none());
        self.checkpoints.iter().map(|(_, id)| *id).chain(current)
    }

    /// Returns the last position up to `len` that has a state.
    pub fn last_until(&self, len: usize) -> usize {
        if self.position <= len {
            return self.position;
        }
        let earlier = self.checkpoints.iter().chain(&self.tentative).map(|(position, _)| *position);
        earlier.filter(|position| *position <= len).max().unwrap_or(0)
    }

    /// Returns the states to which the sequence refers, as often as it does.
    pub fn ids(&self) -> impl Iterator<Item = StateId> {
        let earlier = self.tentative.iter().chain(&self.checkpoints).map(|(_, id)| *id);
        self.current.into_iter().chain(earlier)
    }
}

/// The states that a run of a sequence reads and writes.
struct RunStates {
    /// The state before the run, if it becomes a checkpoint.
    at_start: Option<StateId>,
    /// Whether the state after the run becomes a checkpoint.
    ends_at_checkpoint: bool,
    /// Positions of checkpoints within the run.
    inner: Vec<usize>,
    /// Positions within the run whose states are stored because the tokens after them may be
    /// discarded.
    tentative: Vec<usize>,
    /// Whether the state before the run stays, because all tokens may be discarded.
    keeps_start: bool,
    /// The state before the run, if the state after it replaces it.
    in_place: Option<StateId>,
}

/// The states of all sequences, with reference counts.
#[derive(Debug)]
pub(super) struct States {
    max: usize,
    /// Size of a state in bytes.
    state_bytes: usize,
    /// Number of references to each state.
    ref_counts: Vec<u32>,
    free: Vec<StateId>,
    /// States that only runs of the current step read. They are released after the step, so that no
    /// run of the step overwrites them.
    release_after_step: Vec<StateId>,
}

impl States {
    /// Creates a pool of up to `max` states of `state_bytes` bytes each.
    pub fn new(max: usize, state_bytes: usize) -> Self {
        Self { max, state_bytes, ref_counts: vec![], free: vec![], release_after_step: vec![] }
    }

    /// Returns an empty pool of up to `max` states of the same size.
    pub fn with_max(self, max: usize) -> Self {
        Self::new(max, self.state_bytes)
    }

    /// Returns the number of states that the limit leaves.
    pub fn free(&self) -> usize {
        self.max.saturating_sub(self.in_use())
    }

    /// Returns the number of references to a state.
    pub fn ref_count(&self, id: StateId) -> u32 {
        self.ref_counts[id.index()]
    }

    /// Returns a copy of a sequence's state that shares all states with it.
    pub fn fork(&mut self, source: &SequenceState) -> SequenceState {
        source.ids().for_each(|id| self.ref_counts[id.index()] += 1);
        let SequenceState { position, current, tentative, checkpoints } = source;
        let (tentative, checkpoints) = (tentative.clone(), checkpoints.clone());
        SequenceState { position: *position, current: *current, tentative, checkpoints }
    }

    /// Resets a sequence to the last position up to `len` that has a state, and returns the
    /// position.
    pub fn rewind(&mut self, sequence: &mut SequenceState, len: usize) -> usize {
        if sequence.position <= len {
            return sequence.position;
        }
        let later = sequence.checkpoints.partition_point(|(position, _)| *position <= len);
        let later_ids = sequence.checkpoints.split_off(later).into_iter().map(|(_, id)| id);
        later_ids.chain(sequence.current.take()).for_each(|id| self.release(id));
        let tentative = std::mem::take(&mut sequence.tentative);
        let reached = tentative.partition_point(|(position, _)| *position <= len);
        let ends = [sequence.checkpoints.last(), tentative[..reached].last()];
        let last = ends.into_iter().flatten().max_by_key(|(position, _)| *position).copied();
        last.iter().for_each(|(_, id)| self.ref_counts[id.index()] += 1);
        tentative.into_iter().for_each(|(_, id)| self.release(id));
        (sequence.position, sequence.current) = last.map_or((0, None), |(position, id)| (position, Some(id)));
        sequence.position
    }

    /// Releases the states of a sequence that it does not need after it has advanced to position
    /// `to`.
    pub fn release_unneeded(&mut self, sequence: &mut SequenceState, to: usize, stage: Stage) {
        sequence.tentative.drain(..).for_each(|(_, id)| self.release(id));
        let due = due_checkpoints(sequence.position, to, stage);
        let RunStates { tentative, keeps_start, .. } = self.states_of_run(sequence, to, stage);
        let others = 1 + tentative.len() + usize::from(keeps_start);
        self.drop_least_useful(sequence, to, CHECKPOINTS.min(SEQUENCE_STATES - others) - due.len());
    }

    /// Advances a sequence to position `to`, after [`release_unneeded`](Self::release_unneeded),
    /// and adds the checkpoints that are due. Returns the states that the run reads and writes.
    pub fn advance(&mut self, sequence: &mut SequenceState, to: usize, stage: Stage) -> Result<StateUpdate> {
        let (start, from) = (sequence.position, sequence.current);
        let RunStates { at_start, ends_at_checkpoint, inner, mut tentative, keeps_start, in_place } =
            self.states_of_run(sequence, to, stage);
        let needed = inner.len() + usize::from(in_place.is_none());
        self.make_room(sequence, needed + tentative.len().min(1))?;
        tentative.truncate(self.max - self.in_use() - needed);

        if let Some(id) = at_start {
            self.ref_counts[id.index()] += 1;
            sequence.checkpoints.push((start, id));
        }
        let mut checkpoints: Vec<_> = inner.into_iter().map(|position| (position, self.allocate())).collect();
        sequence.checkpoints.extend(&checkpoints);
        let current = in_place.unwrap_or_else(|| self.allocate());
        if ends_at_checkpoint {
            self.ref_counts[current.index()] += 1;
            sequence.checkpoints.push((to, current));
        }
        match from.filter(|_| in_place.is_none()) {
            Some(id) if keeps_start => sequence.tentative.push((start, id)),
            Some(id) => self.release_after_step.push(id),
            None => {}
        }
        sequence.tentative.extend(tentative.into_iter().map(|position| (position, self.allocate())));
        checkpoints.extend(sequence.tentative.iter().filter(|(position, _)| *position > start));
        checkpoints.sort_unstable_by_key(|(position, _)| *position);
        (sequence.position, sequence.current) = (to, Some(current));
        Ok(StateUpdate { from, to: current, checkpoints })
    }

    /// Returns the number of new states with which a sequence advances to position `to`, and the
    /// number of those without which it cannot.
    pub fn wanted(&self, sequence: &SequenceState, to: usize, stage: Stage) -> [usize; 2] {
        let RunStates { inner, tentative, in_place, .. } = self.states_of_run(sequence, to, stage);
        let needed = inner.len() + usize::from(in_place.is_none());
        [needed + tentative.len(), needed + tentative.len().min(1)]
    }

    /// Returns the states of the run that advances a sequence to position `to`.
    fn states_of_run(&self, sequence: &SequenceState, to: usize, stage: Stage) -> RunStates {
        let (start, from) = (sequence.position, sequence.current);
        let due = due_checkpoints(start, to, stage);
        let is_new = sequence.checkpoints.last().is_none_or(|(last, _)| *last < start);
        let at_start = from.filter(|_| due.first() == Some(&start) && is_new);
        let is_inner = |position: &usize| (start + 1..to).contains(position);
        let inner: Vec<_> = due.iter().copied().filter(is_inner).collect();
        let mut tentative = tentative_positions(to, stage);
        let keeps_start = tentative.first() == Some(&start);
        tentative.retain(|position| is_inner(position) && !inner.contains(position));
        tentative.truncate(RUN_CHECKPOINTS - inner.len());
        let is_own = |id: &StateId| at_start.is_none() && self.ref_counts[id.index()] == 1;
        let in_place = from.filter(|id| !keeps_start && is_own(id));
        RunStates { at_start, ends_at_checkpoint: due.last() == Some(&to), inner, tentative, keeps_start, in_place }
    }

    /// Returns the state of a sequence of `len` positions with new states at `checkpoints`, which
    /// are ascending positions up to `len`.
    pub fn restore(&mut self, checkpoints: &[usize], len: usize) -> Result<SequenceState> {
        let ends_at_checkpoint = checkpoints.last() == Some(&len);
        self.make_room(&mut SequenceState::default(), checkpoints.len() + usize::from(len > 0 && !ends_at_checkpoint))?;
        let checkpoints: Vec<_> = checkpoints.iter().map(|position| (*position, self.allocate())).collect();
        let current = match checkpoints.last() {
            Some((_, id)) if ends_at_checkpoint => {
                self.ref_counts[id.index()] += 1;
                Some(*id)
            }
            _ => (len > 0).then(|| self.allocate()),
        };
        Ok(SequenceState { position: len, current, tentative: vec![], checkpoints })
    }

    /// Ends a step: releases the states that only its runs read.
    pub fn end_step(&mut self) {
        std::mem::take(&mut self.release_after_step).into_iter().for_each(|id| self.release(id));
    }

    /// Releases checkpoints of a sequence of length `len` until `count` are left: first the one
    /// with the smallest ratio of its distance from the previous checkpoint to its distance from
    /// `len`.
    fn drop_least_useful(&mut self, sequence: &mut SequenceState, len: usize, count: usize) {
        let checkpoints = &mut sequence.checkpoints;
        while checkpoints.len() > count {
            let usefulness = |index: &usize| {
                let previous = index.checked_sub(1).map_or(0, |index| checkpoints[index].0);
                let position = checkpoints[*index].0;
                (position - previous) as f64 / (len - position).max(1) as f64
            };
            let least = (0..checkpoints.len()).min_by(|a, b| usefulness(a).total_cmp(&usefulness(b))).unwrap_or(0);
            let (_, id) = checkpoints.remove(least);
            self.release(id);
        }
    }

    /// Makes sure that `count` more states can be allocated, and releases the sequence's oldest
    /// checkpoints for it if necessary.
    fn make_room(&mut self, sequence: &mut SequenceState, count: usize) -> Result<()> {
        while self.in_use() + count > self.max {
            if sequence.checkpoints.is_empty() {
                let bytes = |states: usize| (states as u64).saturating_mul(self.state_bytes as u64);
                let (needed, limit) = (bytes(self.in_use() + count), bytes(self.max));
                return Err(Error::Memory { what: "the recurrent states of all sequences", needed, limit });
            }
            let (_, oldest) = sequence.checkpoints.remove(0);
            self.release(oldest);
        }
        Ok(())
    }

    /// Returns the number of states that have memory, free ones included.
    pub fn len(&self) -> usize {
        self.ref_counts.len()
    }

    /// Returns whether `count` more states exceed neither the limit nor, unless they are free, a
    /// memory of `grown` states.
    pub fn has_room(&self, count: usize, grown: usize) -> bool {
        let new = count.saturating_sub(self.free.len());
        self.in_use() + count <= self.max && (new == 0 || self.len() + new <= grown)
    }

    /// Returns the number of states that are not free.
    fn in_use(&self) -> usize {
        self.ref_counts.len() - self.free.len()
    }

    /// Returns a free state, or adds one, with a reference count of 1.
    fn allocate(&mut self) -> StateId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.ref_counts.push(0);
            StateId(self.ref_counts.len() as u32 - 1)
        });
        self.ref_counts[id.index()] = 1;
        id
    }

    /// Drops a reference to a state, which is free after the last one.
    fn release(&mut self, id: StateId) {
        let count = &mut self.ref_counts[id.index()];
        *count -= 1;
        if *count == 0 {
            self.free.push(id);
        }
    }
}

/// Returns the positions from `start` to `to`, inclusive, that need a checkpoint.
fn due_checkpoints(start: usize, to: usize, stage: Stage) -> Vec<usize> {
    let mut due = match stage {
        Stage::Prompt { end } => vec![end.saturating_sub(PROMPT_END_MARGIN), end.saturating_sub(1)],
        Stage::Within | Stage::Tentative { .. } => vec![],
    };
    due.push(to / INTERVAL * INTERVAL);
    due.retain(|position| *position > 0 && (start..=to).contains(position));
    due.sort_unstable();
    due.dedup();
    due
}

/// Returns the positions to which a tentative run that ends at `to` can be truncated without
/// computing tokens again, in order.
fn tentative_positions(to: usize, stage: Stage) -> Vec<usize> {
    match stage {
        Stage::Tentative { kept } => tentative_offsets(to.saturating_sub(kept)).map(|offset| kept + offset).collect(),
        Stage::Within | Stage::Prompt { .. } => vec![],
    }
}

/// Returns the numbers of tokens, of `count` that may be discarded, after which a run stores its
/// state, in order. The first one is 0.
pub fn tentative_offsets(count: usize) -> impl Iterator<Item = usize> {
    let stored = count.min(RUN_CHECKPOINTS);
    (0..stored).map(move |index| index * count / stored)
}
