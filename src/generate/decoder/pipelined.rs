//! Pipelines greedy decoding: the device starts the next step before the caller asks for it.
//!
//! A step has a token of one or more sequences, and each sequence has at most one pipelined token.
//! The device runs the steps in the order in which they were started, so a result may arrive while
//! another sequence's result is awaited. It is kept until its caller asks for it.

use std::collections::{HashMap, VecDeque};

use super::{
    Decoder, StepOutput,
    call::Role,
    engine::Engine,
    mtp::ComputedTokens,
    sequence::{RunImages, SequenceTokens},
    single_runs,
};
use crate::{
    Error, Result,
    backend::{ChosenTokens, NextToken, Run},
    kv_cache::{SequenceId, Stage},
};

/// Steps of one token of some sequences that were started before a caller asked for them.
#[derive(Default)]
pub(super) struct PipelinedSteps {
    /// Steps on the device, in order.
    pending: VecDeque<Vec<PendingToken>>,
    finished: HashMap<SequenceId, FinishedToken>,
}

/// The token of a sequence in a step that may still be running.
struct PendingToken {
    sequence: SequenceId,
    position: usize,
    /// The token that is appended; `None` until the step that chooses it has ended.
    token: Option<u32>,
    /// Whether a caller may still ask for the result.
    is_needed: bool,
}

/// The token of a sequence in a step that has ended, with a result that no caller has asked for
/// yet.
struct FinishedToken {
    position: usize,
    token: u32,
    /// The most probable next token; `None` if a logit is NaN.
    next: Option<u32>,
    /// The token's hidden row, if the model has a head that needs it.
    hidden: Vec<f32>,
}

/// A token to append to a sequence.
#[derive(Clone, Copy)]
pub(super) struct Appended<'a> {
    pub sequence: SequenceId,
    pub token: u32,
    pub held: &'a SequenceTokens,
}

impl Decoder {
    /// Appends one token to a sequence, and returns the most probable next token, the lowest id of
    /// equal ones. The logits are not kept. A device that supports it starts the step of that token
    /// at once, so that decoding does not wait for the result.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Argument`] if a logit is NaN.
    pub fn greedy(&mut self, id: SequenceId, token: u32) -> Result<u32> {
        self.greedy_many(&[(id, token)]).map(|next| next[0])
    }

    /// Appends one token to each sequence, in one step, and returns the most probable next token of
    /// each as [`greedy`](Self::greedy) does.
    ///
    /// # Errors
    /// As [`greedy`](Self::greedy).
    pub fn greedy_many(&mut self, tokens: &[(SequenceId, u32)]) -> Result<Vec<u32>> {
        Ok(self.extend(&single_runs(tokens), StepOutput::Greedy, Role::Given)?.unwrap_or_default())
    }
}

impl Engine {
    /// Returns the most probable token after each appended token, with which the device continues.
    /// `None` if the device does not pipeline steps, or if the cache lacks a part of a sequence.
    pub fn greedy(&mut self, tokens: &[Appended<'_>]) -> Result<Option<Vec<u32>>> {
        if self.executable.pipelined().is_none() {
            return Ok(None);
        }
        let mut missing = vec![];
        for appended in tokens {
            let Appended { sequence, token, held } = *appended;
            let position = held.ids.len();
            if !self.pipelined.has(sequence, position, token) {
                self.discard_pipelined(sequence)?;
                if self.cache.len(sequence)? < position {
                    return Ok(None);
                }
                missing.push((appended, NextToken::Given(token)));
            }
        }
        match self.start(&missing) {
            // A step that is not pipelined makes room.
            Err(error) if error.is_out_of_memory() => return Ok(None),
            started => started?,
        }
        // The device keeps only the tokens that its last step chose. Starting fails at the end of
        // the context.
        let goes_on = !tokens.iter().any(|appended| appended.held.ends_pipeline);
        let next = tokens.iter().map(|appended| Some((appended, self.pipelined.next(appended.sequence)?)));
        let next: Option<Vec<_>> = next.collect();
        let follows = goes_on && next.is_some_and(|next| self.start(&next).is_ok());
        while !tokens.iter().all(|appended| self.pipelined.finished.contains_key(&appended.sequence)) {
            self.finish_earliest()?;
        }
        let finished = tokens.iter().map(|appended| self.pipelined.finished.remove(&appended.sequence));
        let finished: Vec<_> = finished.flatten().collect();
        let next = finished.iter().map(|finished| finished.next.ok_or_else(not_a_number)).collect::<Result<Vec<_>>>();
        let next = match next.and_then(|next| self.pass_chosen_to_head(tokens, &finished).map(|()| next)) {
            Ok(next) => next,
            Err(error) => {
                for Appended { sequence, held, .. } in tokens {
                    self.discard_pipelined(*sequence)?;
                    let len = held.ids.len();
                    self.truncate(*sequence, len, len)?;
                }
                return Err(error);
            }
        };
        if !follows && goes_on {
            let given = tokens.iter().zip(&next).map(|(appended, next)| (appended, NextToken::Given(*next)));
            _ = self.start(&given.collect::<Vec<_>>());
        }
        Ok(Some(next))
    }

    /// Passes the hidden rows of appended tokens to the head.
    fn pass_chosen_to_head(&mut self, tokens: &[Appended<'_>], finished: &[FinishedToken]) -> Result<()> {
        let Some(head) = &mut self.head else { return Ok(()) };
        for (Appended { sequence, held, .. }, finished) in tokens.iter().zip(finished) {
            let FinishedToken { position, token, hidden, .. } = finished;
            let computed = ComputedTokens { start: *position, ids: &[*token], hidden, checkpoints: &[] };
            head.append(&self.cache, *sequence, &computed, &held.images)?;
        }
        Ok(())
    }

    /// Discards the pipelined token of a sequence, if there is one, so that the cache matches the
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

    /// Starts a step of one token of each sequence.
    fn start(&mut self, tokens: &[(&Appended<'_>, NextToken)]) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let mut positions = Vec::with_capacity(tokens.len());
        let started = self.start_at(tokens, &mut positions);
        let pending = |((Appended { sequence, .. }, token), position): (&(&Appended<'_>, NextToken), &usize)| {
            let token = if let NextToken::Given(id) = token { Some(*id) } else { None };
            PendingToken { sequence: *sequence, position: *position, token, is_needed: true }
        };
        match started {
            Ok(()) => {
                self.copies.clear();
                self.pipelined.pending.push_back(tokens.iter().zip(&positions).map(pending).collect());
            }
            Err(_) => {
                for ((Appended { sequence, .. }, _), position) in tokens.iter().zip(positions) {
                    _ = self.cache.truncate(*sequence, position)?;
                }
            }
        }
        started
    }

    /// Starts a step, and lists the positions by which the sequences were extended.
    fn start_at(&mut self, tokens: &[(&Appended<'_>, NextToken)], positions: &mut Vec<usize>) -> Result<()> {
        let (mut states, mut rotary) = (vec![], vec![]);
        for (Appended { sequence, held, .. }, _) in tokens {
            let position = self.cache.extend(*sequence, 1)?;
            positions.push(position);
            self.collect_copies();
            states.push(self.cache.advance(*sequence, position + 1, Stage::Tentative { kept: position })?);
            rotary.push(RunImages::new(&held.images, position..position + 1).rotary);
        }
        let mut runs = vec![];
        for (index, (Appended { sequence, .. }, _)) in tokens.iter().enumerate() {
            let (pages, state) = (self.cache.pages(*sequence)?, states[index].as_ref());
            runs.push(Run { len: 1, start: positions[index], pages, state, rotary: &rotary[index], ..Run::default() });
        }
        let ids: Vec<_> = tokens.iter().map(|(_, token)| *token).collect();
        self.work.steps += 1;
        match self.executable.pipelined() {
            Some(pipelined) => pipelined.start(&ids, &runs, &self.copies),
            None => Err(not_pipelined()),
        }
    }

    /// Waits for the earliest pending step.
    fn finish_earliest(&mut self) -> Result<()> {
        let result = match self.executable.pipelined() {
            Some(pipelined) => pipelined.take(),
            None => Err(not_pipelined()),
        };
        // A failed step has ended, too.
        let step = self.pipelined.pending.pop_front();
        let ChosenTokens { ids, hidden } = result?;
        let width = hidden.len() / ids.len().max(1);
        let tokens = step.into_iter().flatten().zip(ids);
        for (row, (PendingToken { sequence, position, token, is_needed }, next)) in tokens.enumerate() {
            if let (Some(token), true) = (token, is_needed) {
                let hidden = hidden[row * width..(row + 1) * width].to_vec();
                self.pipelined.finish(sequence, FinishedToken { position, token, next, hidden });
            }
        }
        Ok(())
    }
}

/// Returns the error of logits of which one is NaN.
pub(super) fn not_a_number() -> Error {
    Error::argument("logits", "contain NaN: the model file may be damaged")
}

fn not_pipelined() -> Error {
    Error::Unsupported("this device does not pipeline steps".into())
}

impl PipelinedSteps {
    /// Returns whether this token was started and its result is needed.
    fn has(&self, sequence: SequenceId, position: usize, token: u32) -> bool {
        let finished = self.finished.get(&sequence).map(|step| (step.position, Some(step.token)));
        let pending = || self.needed(sequence).map(|step| (step.position, step.token));
        finished.or_else(pending) == Some((position, Some(token)))
    }

    fn needed(&self, sequence: SequenceId) -> Option<&PendingToken> {
        self.pending.iter().flatten().find(|step| step.sequence == sequence && step.is_needed)
    }

    /// Returns whether a token of a sequence was started whose result is needed.
    pub fn has_started(&self, sequence: SequenceId) -> bool {
        self.finished.contains_key(&sequence) || self.needed(sequence).is_some()
    }

    /// Returns the token that follows a sequence's started token, if the next step can have it: it
    /// is known, or the last started step chooses it.
    fn next(&self, sequence: SequenceId) -> Option<NextToken> {
        if let Some(finished) = self.finished.get(&sequence) {
            return finished.next.map(NextToken::Given);
        }
        let mut last = self.pending.back()?.iter();
        last.position(|step| step.sequence == sequence && step.is_needed).map(NextToken::Chosen)
    }

    /// Keeps a result, and sets its next token in the step that appends it.
    fn finish(&mut self, sequence: SequenceId, finished: FinishedToken) {
        let mut pending = self.pending.iter_mut().flatten();
        if let Some(step) = pending.find(|step| step.sequence == sequence && step.is_needed) {
            step.token = finished.next;
            step.is_needed = finished.next.is_some();
        }
        self.finished.insert(sequence, finished);
    }

    /// Discards the tokens of a sequence, and returns the position of the first one.
    fn discard(&mut self, sequence: SequenceId) -> Option<usize> {
        let finished = self.finished.remove(&sequence).map(|step| step.position);
        let of_sequence = self.pending.iter_mut().flatten().filter(|step| step.sequence == sequence && step.is_needed);
        let discarded = of_sequence.map(|step| {
            step.is_needed = false;
            step.position
        });
        discarded.chain(finished).min()
    }
}
