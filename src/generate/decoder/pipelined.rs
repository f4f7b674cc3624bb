//! Pipelines greedy decoding: the device starts the next step before the caller asks for it.
//!
//! Each sequence has at most one pipelined step. The device runs the steps of all sequences in the
//! order in which they were started, so a result may arrive while another sequence's result is
//! awaited. It is kept until its caller asks for it.

use std::collections::{HashMap, VecDeque};

use super::{
    Decoder, LogitsFor, StepOutput,
    engine::Engine,
    images::PlacedImage,
    sequence::{RunImages, SequenceTokens},
};
use crate::{
    Error, Result,
    backend::Run,
    kv_cache::{SequenceId, Stage},
    sampler::largest,
};

/// Steps of one token that were started before a caller asked for them.
#[derive(Default)]
pub(super) struct PipelinedSteps {
    /// Steps on the device, in order.
    pending: VecDeque<(SequenceId, PendingStep)>,
    finished: HashMap<SequenceId, FinishedStep>,
}

/// A step that may still be running.
struct PendingStep {
    position: usize,
    /// The token that is appended; `None` until the previous step of the sequence, which chooses
    /// it, has ended.
    token: Option<u32>,
    /// Whether a caller may still ask for the result.
    is_needed: bool,
}

/// A step with a result that no caller has asked for yet.
struct FinishedStep {
    position: usize,
    token: u32,
    /// The most probable next token; `None` if a logit is NaN.
    next: Option<u32>,
}

impl Decoder {
    /// Appends one token to a sequence, and returns the most probable next token, the lowest id of
    /// equal ones. A device that supports it starts the step of that token at once, so that
    /// decoding does not wait for logits; these are then not available.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Argument`] if a logit is NaN.
    pub fn greedy(&mut self, id: SequenceId, token: u32) -> Result<u32> {
        match self.extend(&[(id, &[token], LogitsFor::Last)], StepOutput::Greedy, None)? {
            Some(next) => Ok(next),
            None => largest(&self.logits).map(|best| best.id),
        }
    }
}

impl Engine {
    /// Returns the most probable token after `token`, which follows `held`, and with which the
    /// device continues. `None` if the device does not pipeline steps, or if the cache lacks a part
    /// of the sequence.
    pub fn greedy(&mut self, id: SequenceId, token: u32, held: &SequenceTokens) -> Result<Option<u32>> {
        let position = held.ids.len();
        if self.executable.pipelined().is_none() {
            return Ok(None);
        }
        if !self.pipelined.has(id, position, token) {
            self.discard_pipelined(id)?;
            if self.cache.len(id)? < position {
                return Ok(None);
            }
            self.start(id, Some(token), &held.images)?;
        }
        // The device keeps only the token of its last step. Starting fails at the end of the
        // context.
        let follows = self.pipelined.is_last(id) && self.start(id, None, &held.images).is_ok();
        while !self.pipelined.finished.contains_key(&id) {
            self.finish_earliest()?;
        }
        let next = self.pipelined.finished.remove(&id).and_then(|finished| finished.next);
        let Some(next) = next else {
            self.discard_pipelined(id)?;
            self.cache.truncate(id, position)?;
            return Err(Error::argument("logits", "contain NaN: the model file may be damaged"));
        };
        if !follows {
            _ = self.start(id, Some(next), &held.images);
        }
        Ok(Some(next))
    }

    /// Discards the pipelined step of a sequence, if there is one, so that the cache matches the
    /// sequence's tokens.
    pub fn discard_pipelined(&mut self, id: SequenceId) -> Result<()> {
        match self.pipelined.discard(id) {
            Some(position) => self.cache.truncate(id, position).map(drop),
            None => Ok(()),
        }
    }

    /// Waits for all pending steps.
    pub fn settle(&mut self) -> Result<()> {
        while !self.pipelined.pending.is_empty() {
            self.finish_earliest()?;
        }
        Ok(())
    }

    /// Starts a step of one token: `token`, or the token that the last started step chooses.
    fn start(&mut self, id: SequenceId, token: Option<u32>, images: &[PlacedImage]) -> Result<()> {
        let position = self.cache.extend(id, 1)?;
        self.copies.extend(self.cache.take_copies());
        let started = self.start_at(id, token, position, images);
        match started {
            Ok(()) => {
                self.copies.clear();
                self.pipelined.pending.push_back((id, PendingStep { position, token, is_needed: true }));
            }
            Err(_) => _ = self.cache.truncate(id, position)?,
        }
        started
    }

    fn start_at(&mut self, id: SequenceId, token: Option<u32>, position: usize, images: &[PlacedImage]) -> Result<()> {
        let RunImages { rotary, .. } = RunImages::new(images, position..position + 1);
        let state = self.cache.advance(id, position + 1, Stage::Pipelined)?;
        let pages = self.cache.pages(id)?;
        let run = Run { len: 1, start: position, pages, state: state.as_ref(), rotary: &rotary, ..Run::default() };
        match self.executable.pipelined() {
            Some(pipelined) => pipelined.start(token, run, &self.copies),
            None => Err(Error::Unsupported("this device does not pipeline steps".into())),
        }
    }

    /// Waits for the earliest pending step.
    fn finish_earliest(&mut self) -> Result<()> {
        let result = match self.executable.pipelined() {
            Some(pipelined) => pipelined.take(),
            None => Err(Error::Unsupported("this device does not pipeline steps".into())),
        };
        // A failed step has ended, too.
        let step = self.pipelined.pending.pop_front();
        let next = result?;
        if let Some((id, PendingStep { position, token: Some(token), is_needed: true })) = step {
            self.pipelined.finish(id, FinishedStep { position, token, next });
        }
        Ok(())
    }
}

impl PipelinedSteps {
    /// Returns whether this step was started and its result is needed.
    fn has(&self, id: SequenceId, position: usize, token: u32) -> bool {
        let finished = self.finished.get(&id).map(|step| (step.position, Some(step.token)));
        finished.or_else(|| self.needed_step(id).map(|step| (step.position, step.token)))
            == Some((position, Some(token)))
    }

    fn needed_step(&self, id: SequenceId) -> Option<&PendingStep> {
        self.pending.iter().find(|(sequence, step)| *sequence == id && step.is_needed).map(|(_, step)| step)
    }

    /// Returns whether the last started step belongs to this sequence and is needed.
    fn is_last(&self, id: SequenceId) -> bool {
        self.pending.back().is_some_and(|(sequence, step)| *sequence == id && step.is_needed)
    }

    /// Keeps a result, and sets its next token in the step that appends it.
    fn finish(&mut self, id: SequenceId, finished: FinishedStep) {
        if let Some((_, step)) = self.pending.iter_mut().find(|(sequence, step)| *sequence == id && step.is_needed) {
            step.token = finished.next;
            step.is_needed = finished.next.is_some();
        }
        self.finished.insert(id, finished);
    }

    /// Discards the steps of a sequence, and returns the position of the first one.
    fn discard(&mut self, id: SequenceId) -> Option<usize> {
        let finished = self.finished.remove(&id).map(|step| step.position);
        let of_sequence = self.pending.iter_mut().filter(|(sequence, step)| *sequence == id && step.is_needed);
        let discarded = of_sequence.map(|(_, step)| {
            step.is_needed = false;
            step.position
        });
        discarded.chain(finished).min()
    }
}
