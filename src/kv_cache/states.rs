//! What recurrent layers keep of each sequence: a state of fixed size, which cannot be cut off at a position as keys and
//! values can.
//!
//! A sequence goes back to a checkpoint, that is a state kept from when it was as long. Checkpoints stand where
//! sequences are likely to go back to: before a prompt's last token, which whoever wants another answer computes again;
//! a little before that, as chat templates end a prompt with a head of the answer that the next prompt may lack; and at
//! intervals of longer texts. There are a few for each sequence, the further back the sparser.
//!
//! States are shared by those who need the same one, and a step reads one and may write another: forks and going back
//! copy nothing.

use super::BEFORE_END;
use crate::{Error, Result};

/// The most checkpoints that a sequence has.
pub const CHECKPOINTS: usize = 8;

/// Checkpoints of a text that is no prompt's end stand at multiples of this.
const INTERVAL: usize = 512;

/// Names the state of all recurrent layers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId(u32);

impl StateId {
    /// Its number; states are numbered from 0 without gaps.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The most checkpoints of one run.
pub const RUN_CHECKPOINTS: usize = 3;

/// What the tokens of a run are to their sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A part of what it holds.
    Within,
    /// A part of a prompt of several tokens.
    Prompt {
        /// The position where the prompt ends.
        end: usize,
    },
    /// A token that may not be wanted: the sequence must be able to go back to before it.
    Ahead,
}

/// What a run does with its sequence's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUpdate {
    /// The state before the run; `None` at a sequence's start, when all of it is zero.
    pub from: Option<StateId>,
    /// Where the state after the run goes. It may be `from`.
    pub to: StateId,
    /// Where the state before some of the run's later positions goes as well: up to [`RUN_CHECKPOINTS`], in order.
    pub checkpoints: Vec<(usize, StateId)>,
}

impl StateUpdate {
    /// All states that it names.
    pub fn ids(&self) -> impl Iterator<Item = StateId> {
        self.checkpoints.iter().map(|(_, id)| *id).chain(self.from).chain([self.to])
    }
}

/// A sequence's states.
#[derive(Debug, Default)]
pub(super) struct SequenceState {
    /// The positions that the state has seen.
    at: usize,
    /// The state, but for a sequence that has seen nothing.
    live: Option<StateId>,
    /// The state before the last run, where that may have been run in vain.
    before: Option<(usize, StateId)>,
    /// In order of their positions, which are up to `at`.
    checkpoints: Vec<(usize, StateId)>,
}

impl SequenceState {
    fn ids(&self) -> impl Iterator<Item = StateId> {
        let kept = self.before.iter().chain(&self.checkpoints).map(|(_, id)| *id);
        self.live.into_iter().chain(kept)
    }
}

/// The states of all sequences.
#[derive(Debug)]
pub(super) struct States {
    max: usize,
    /// How often each state is in use.
    holders: Vec<u32>,
    free: Vec<StateId>,
    /// Those that runs of the step in the making read and nobody needs after it: until then nobody writes them.
    read: Vec<StateId>,
}

impl States {
    /// Up to `max` of them.
    pub fn new(max: usize) -> Self {
        Self { max, holders: vec![], free: vec![], read: vec![] }
    }

    /// The states of a sequence that goes on from where another is.
    pub fn fork(&mut self, of: &SequenceState) -> SequenceState {
        of.ids().for_each(|id| self.holders[id.index()] += 1);
        SequenceState { at: of.at, live: of.live, before: of.before, checkpoints: of.checkpoints.clone() }
    }

    /// Takes a sequence back to the last position up to `len` of which there is a state, and returns it.
    pub fn rewind(&mut self, sequence: &mut SequenceState, len: usize) -> usize {
        if sequence.at <= len {
            return sequence.at;
        }
        let later = sequence.checkpoints.partition_point(|(at, _)| *at <= len);
        let dropped = sequence.checkpoints.split_off(later).into_iter().map(|(_, id)| id).chain(sequence.live.take());
        dropped.for_each(|id| self.release(id));
        let before = sequence.before.take();
        if let Some((at, id)) = before.filter(|(at, _)| *at <= len) {
            (sequence.at, sequence.live) = (at, Some(id));
            return at;
        }
        before.into_iter().for_each(|(_, id)| self.release(id));
        let last = sequence.checkpoints.last().copied();
        last.iter().for_each(|(_, id)| self.holders[id.index()] += 1);
        (sequence.at, sequence.live) = last.map_or((0, None), |(at, id)| (at, Some(id)));
        sequence.at
    }

    /// What a run does that takes a sequence to position `to`, with checkpoints where they are due.
    pub fn advance(&mut self, sequence: &mut SequenceState, to: usize, stage: Stage) -> Result<StateUpdate> {
        if let Some((_, id)) = sequence.before.take() {
            self.release(id);
        }
        let (at, from) = (sequence.at, sequence.live);
        let due = due(at, to, stage);
        self.thin(sequence, to, CHECKPOINTS - due.len());
        let here =
            from.filter(|_| due.first() == Some(&at) && sequence.checkpoints.last().is_none_or(|(p, _)| *p < at));
        let inner = due.iter().copied().filter(|position| (at + 1..to).contains(position));
        let in_place = from.filter(|id| stage != Stage::Ahead && here.is_none() && self.holders[id.index()] == 1);
        self.make_room(sequence, inner.clone().count() + usize::from(in_place.is_none()))?;

        if let Some(id) = here {
            self.holders[id.index()] += 1;
            sequence.checkpoints.push((at, id));
        }
        let checkpoints: Vec<_> = inner.map(|position| (position, self.take())).collect();
        sequence.checkpoints.extend(&checkpoints);
        let live = in_place.unwrap_or_else(|| self.take());
        if due.last() == Some(&to) {
            self.holders[live.index()] += 1;
            sequence.checkpoints.push((to, live));
        }
        match from.filter(|_| in_place.is_none()) {
            Some(id) if stage == Stage::Ahead => sequence.before = Some((at, id)),
            Some(id) => self.read.push(id),
            None => {}
        }
        (sequence.at, sequence.live) = (to, Some(live));
        Ok(StateUpdate { from, to: live, checkpoints })
    }

    /// Ends a step: what its runs read may be written by the next.
    pub fn end_step(&mut self) {
        std::mem::take(&mut self.read).into_iter().for_each(|id| self.release(id));
    }

    /// Leaves a sequence that comes to be `len` long no more than `count` checkpoints. Those go first that are near the one
    /// before them, for how far back they are.
    fn thin(&mut self, sequence: &mut SequenceState, len: usize, count: usize) {
        let checkpoints = &mut sequence.checkpoints;
        while checkpoints.len() > count {
            let worth = |index: &usize| {
                let before = index.checked_sub(1).map_or(0, |index| checkpoints[index].0);
                let at = checkpoints[*index].0;
                (at - before) as f64 / (len - at).max(1) as f64
            };
            let least = (0..checkpoints.len()).min_by(|a, b| worth(a).total_cmp(&worth(b))).unwrap_or(0);
            let (_, id) = checkpoints.remove(least);
            self.release(id);
        }
    }

    /// Sees to it that `count` more states can be taken, if need be at the cost of the sequence's oldest checkpoints.
    fn make_room(&mut self, sequence: &mut SequenceState, count: usize) -> Result<()> {
        let mut oldest = 0;
        while self.holders.len() - self.free.len() + count > self.max {
            if oldest == sequence.checkpoints.len() {
                let what = format!("the states of recurrent layers would be more than the {} that fit", self.max);
                return Err(Error::argument("memory_limit", what));
            }
            let (_, id) = sequence.checkpoints[oldest];
            self.release(id);
            oldest += 1;
        }
        sequence.checkpoints.drain(..oldest);
        Ok(())
    }

    fn take(&mut self) -> StateId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.holders.push(0);
            StateId(self.holders.len() as u32 - 1)
        });
        self.holders[id.index()] = 1;
        id
    }

    fn release(&mut self, id: StateId) {
        let holders = &mut self.holders[id.index()];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(id);
        }
    }
}

/// The positions, from `at` to `to`, at which there are to be checkpoints.
fn due(at: usize, to: usize, stage: Stage) -> Vec<usize> {
    let mut due = match stage {
        Stage::Prompt { end } => vec![end.saturating_sub(BEFORE_END), end.saturating_sub(1)],
        Stage::Within | Stage::Ahead => vec![],
    };
    due.push(to / INTERVAL * INTERVAL);
    due.retain(|position| *position > 0 && (at..=to).contains(position));
    due.sort_unstable();
    due.dedup();
    due
}
