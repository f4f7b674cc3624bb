//! The most probable tokens, where the device goes on with each before anybody asks.
//!
//! Each sequence has one step ahead at most. The device takes the steps of all sequences in the order in which they were
//! started, so the result of one may come by while another sequence's is waited for: it is kept until it is asked for.

use std::collections::{HashMap, VecDeque};

use super::{Decoder, Find, Wanted, engine::Engine};
use crate::{
    Error, Result,
    backend::Run,
    kv_cache::{SequenceId, Stage},
    sampler::largest,
};

/// Steps of one token that were started and not asked for yet.
#[derive(Default)]
pub(super) struct StepsAhead {
    /// In the order in which the device takes them.
    under_way: VecDeque<(SequenceId, UnderWay)>,
    finished: HashMap<SequenceId, Finished>,
}

/// A step that the device has not been waited for.
struct UnderWay {
    position: usize,
    /// `None` until the step before it, of the same sequence, has ended: its token is what that one chooses.
    token: Option<u32>,
    /// Whether somebody may yet ask for it.
    wanted: bool,
}

/// A step that has ended.
struct Finished {
    position: usize,
    token: u32,
    /// The most probable token after it; `None` where some logit is not a number.
    next: Option<u32>,
}

impl Decoder {
    /// Appends one token to a sequence and returns the most probable one to follow, the lowest id among equals. Where the
    /// device can, it goes on with that one before anybody asks: then a token costs no wait for the logits, which are not
    /// to be had.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Argument`] where some logit is not a number.
    pub fn greedy(&mut self, id: SequenceId, token: u32) -> Result<u32> {
        match self.extend(&[(id, &[token], Wanted::Last)], Find::Next, None)? {
            Some(next) => Ok(next),
            None => largest(&self.logits).map(|best| best.id),
        }
    }
}

impl Engine {
    /// The most probable token after `token` at `position`; the device then goes on with it. `None` where the device does
    /// not go ahead, or the cache lacks some of the sequence.
    pub fn greedy(&mut self, id: SequenceId, token: u32, position: usize) -> Result<Option<u32>> {
        if self.executable.ahead().is_none() {
            return Ok(None);
        }
        if !self.ahead.has(id, position, token) {
            self.forget_ahead(id)?;
            if self.cache.len(id)? < position {
                return Ok(None);
            }
            self.start(id, Some(token))?;
        }
        // The device has the token of its last step alone. At the context's end nothing is left to start.
        let follows = self.ahead.is_last(id) && self.start(id, None).is_ok();
        while !self.ahead.finished.contains_key(&id) {
            self.finish_earliest()?;
        }
        let next = self.ahead.finished.remove(&id).and_then(|finished| finished.next);
        let Some(next) = next else {
            self.forget_ahead(id)?;
            self.cache.truncate(id, position)?;
            return Err(Error::argument("logits", "has one that is not a number"));
        };
        if !follows {
            _ = self.start(id, Some(next));
        }
        Ok(Some(next))
    }

    /// Drops the step ahead of a sequence, if there is one: the cache is then as the sequence's tokens are.
    pub fn forget_ahead(&mut self, id: SequenceId) -> Result<()> {
        match self.ahead.forget(id) {
            Some(position) => self.cache.truncate(id, position).map(drop),
            None => Ok(()),
        }
    }

    /// Waits for all that is under way.
    pub fn settle(&mut self) -> Result<()> {
        while !self.ahead.under_way.is_empty() {
            self.finish_earliest()?;
        }
        Ok(())
    }

    /// Starts a step of one token, or of the one that the step started last chooses.
    fn start(&mut self, id: SequenceId, token: Option<u32>) -> Result<()> {
        let position = self.cache.extend(id, 1)?;
        self.copies.extend(self.cache.take_copies());
        let started = self.start_at(id, token, position);
        match started {
            Ok(()) => {
                self.copies.clear();
                self.ahead.under_way.push_back((id, UnderWay { position, token, wanted: true }));
            }
            Err(_) => _ = self.cache.truncate(id, position)?,
        }
        started
    }

    fn start_at(&mut self, id: SequenceId, token: Option<u32>, position: usize) -> Result<()> {
        let state = self.cache.advance(id, position + 1, Stage::Ahead)?;
        let run = Run { len: 1, start: position, pages: self.cache.pages(id)?, state: state.as_ref() };
        match self.executable.ahead() {
            Some(ahead) => ahead.start(token, run, &self.copies),
            None => Err(Error::Unsupported("this device does not run ahead".into())),
        }
    }

    /// Waits for the earliest step that is under way.
    fn finish_earliest(&mut self) -> Result<()> {
        let taken = match self.executable.ahead() {
            Some(ahead) => ahead.take(),
            None => Err(Error::Unsupported("this device does not run ahead".into())),
        };
        // A step that has failed is over, too.
        let step = self.ahead.under_way.pop_front();
        let next = taken?;
        if let Some((id, UnderWay { position, token: Some(token), wanted: true })) = step {
            self.ahead.finish(id, Finished { position, token, next });
        }
        Ok(())
    }
}

impl StepsAhead {
    /// Whether this step was started, and is to be had.
    fn has(&self, id: SequenceId, position: usize, token: u32) -> bool {
        let finished = self.finished.get(&id).map(|step| (step.position, Some(step.token)));
        finished.or_else(|| self.wanted(id).map(|step| (step.position, step.token))) == Some((position, Some(token)))
    }

    fn wanted(&self, id: SequenceId) -> Option<&UnderWay> {
        self.under_way.iter().find(|(of, step)| *of == id && step.wanted).map(|(_, step)| step)
    }

    /// Whether the step that was started last is this sequence's, and wanted.
    fn is_last(&self, id: SequenceId) -> bool {
        self.under_way.back().is_some_and(|(of, step)| *of == id && step.wanted)
    }

    /// Keeps a result, and gives its token to the step that goes on with it.
    fn finish(&mut self, id: SequenceId, finished: Finished) {
        if let Some((_, step)) = self.under_way.iter_mut().find(|(of, step)| *of == id && step.wanted) {
            step.token = finished.next;
            step.wanted = finished.next.is_some();
        }
        self.finished.insert(id, finished);
    }

    /// Drops what there is of a sequence, and returns the position of the first step dropped.
    fn forget(&mut self, id: SequenceId) -> Option<usize> {
        let finished = self.finished.remove(&id).map(|step| step.position);
        let of_sequence = self.under_way.iter_mut().filter(|(of, step)| *of == id && step.wanted);
        let dropped = of_sequence.map(|(_, step)| {
            step.wanted = false;
            step.position
        });
        dropped.chain(finished).min()
    }
}
