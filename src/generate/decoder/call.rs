//! The call of a caller that wants tokens appended to its sequences.

use std::{borrow::Cow, collections::HashMap, time::Instant};

use super::{
    Limits, LogitsFor, StepOutput,
    admission::{Claim, Shortage},
    batch::Request,
    engine::{Engine, OutputBuffers},
    pipelined::Appended,
    sequence::SequenceTokens,
};
use crate::{
    Result,
    backend::TopLogits,
    kv_cache::{CacheRoom, SequenceId, Stage},
    profile::FEW_ROWS,
};

/// The role of the tokens of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Tokens that the caller gives: several with logits are a prompt.
    Given,
    /// Tokens of a prompt that ends at this position.
    PromptUntil(usize),
    /// The next token of each sequence, and drafted ones after it.
    Drafted,
}

/// Tokens to append to sequences, and the results.
pub(super) struct StepCall<'a> {
    pub runs: &'a [(SequenceId, &'a [u32], LogitsFor)],
    /// The tokens of the caller's sequences.
    pub held: &'a HashMap<SequenceId, SequenceTokens>,
    pub limits: Limits,
    pub recompute: bool,
    pub output: StepOutput,
    pub role: Role,
    /// The logits of the outputs, if they are not selected from.
    pub logits: &'a mut Vec<f32>,
    /// The largest logits of each output, if the device has selected them.
    pub top: &'a mut Vec<TopLogits>,
    /// The most probable token of each output, if the device has chosen it.
    pub most_probable: Option<Vec<u32>>,
    /// The outputs of the last step among all outputs of that step.
    pub rows: StepRowsAt,
}

/// The outputs of a call in a step of the engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepRowsAt {
    /// The number of the step.
    pub step: u64,
    /// The number of the first output.
    pub first: usize,
}

impl<'a> StepCall<'a> {
    /// Returns what the call asks of the cache.
    pub fn claim(&self) -> Claim<'a> {
        Claim { runs: self.runs, held: self.held, role: self.role, beside: vec![] }
    }

    /// Computes the call in steps of its own. If the device has no memory, kept sequences give
    /// theirs.
    pub fn run_alone(&mut self, engine: &mut Engine) -> Result<(), Shortage> {
        match self.try_alone(engine) {
            Err(Shortage::Fails(error)) if error.is_out_of_memory() && !engine.cache.kept().is_empty() => {
                engine.cache.evict_kept()?;
                self.try_alone(engine)
            }
            done => done,
        }
    }

    fn try_alone(&mut self, engine: &mut Engine) -> Result<(), Shortage> {
        self.logits.clear();
        self.top.clear();
        self.most_probable = None;
        let claim = self.claim();
        engine.work.most_calls = engine.work.most_calls.max(1);
        engine.admit(&claim, CacheRoom::default())?;
        let pipelines = matches!(self.output, StepOutput::Greedy)
            && !self.recompute
            && self.runs.iter().all(|(_, new, _)| new.len() == 1)
            && self.runs.len() <= self.limits.max_tokens.min(self.limits.max_outputs);
        if pipelines && let Some(next) = engine.greedy(&self.appended())? {
            self.most_probable = Some(next);
            return Ok(());
        }
        let mut requests = self.requests(engine)?;
        let restoring = self.restoring(&requests);
        if !restoring.is_empty() {
            let (mut logits, mut top) = (vec![], vec![]);
            let outputs = OutputBuffers {
                logits: &mut logits,
                top: &mut top,
                top_k: None,
                most_probable: None,
                leaves_choice: false,
            };
            engine.compute(&restoring, self.limits, outputs, &claim)?;
            requests = self.requests(engine)?;
        }
        let top_k = if let StepOutput::Top(count) = self.output { Some(count) } else { None };
        let mut next = matches!(self.output, StepOutput::Greedy).then(Vec::new);
        let outputs = OutputBuffers {
            logits: self.logits,
            top: self.top,
            top_k,
            most_probable: next.as_mut(),
            leaves_choice: false,
        };
        let started = Instant::now();
        engine.compute(&requests, self.limits, outputs, &claim)?;
        if !self.is_plain() || requests.iter().all(|request| request.tokens.len() <= FEW_ROWS) {
            engine.pace.record(0, started.elapsed());
        }
        self.most_probable = next;
        self.rows = StepRowsAt { step: engine.work.steps, first: 0 };
        Ok(())
    }

    /// Returns whether the results are all logits, which several steps may compute.
    pub fn is_plain(&self) -> bool {
        matches!(self.output, StepOutput::Logits) && self.role != Role::Drafted
    }

    /// Returns whether the call has many tokens, which several steps may compute.
    pub fn is_prompt(&self) -> bool {
        self.is_plain() && self.runs.iter().map(|(_, tokens, _)| tokens.len()).sum::<usize>() > FEW_ROWS
    }

    /// Returns the requests of the call. Pipelined steps of its sequences are discarded.
    pub fn requests(&self, engine: &mut Engine) -> Result<Vec<Request<'a>>> {
        let request = |run: &(SequenceId, &'a [u32], LogitsFor)| {
            engine.discard_pipelined(run.0)?;
            let start = if self.recompute { 0 } else { engine.cache.len(run.0)? };
            let SequenceTokens { ids, images, .. } = &self.held[&run.0];
            if !self.recompute {
                engine.work.recomputed_tokens += (ids.len() - start) as u64;
            }
            Ok(Request::new(*run, ids, images, start, self.role))
        };
        self.runs.iter().map(request).collect()
    }

    /// Returns requests for the tokens that the cache lacks of the sequences, which are computed
    /// before the call's own ones; none if the call's steps have them, too: they are few, or the
    /// call is divisible.
    pub fn restoring(&self, requests: &[Request<'a>]) -> Vec<Request<'a>> {
        let tokens: usize = requests.iter().map(|request| request.tokens.len()).sum();
        if self.recompute || self.is_plain() || tokens <= FEW_ROWS {
            return vec![];
        }
        let lacking = requests.iter().filter(|request| request.start < request.held);
        let request = |&Request { sequence, start, held, images, .. }: &Request<'a>| {
            let tokens = Cow::Borrowed(&self.held[&sequence].ids[start..held]);
            Request { sequence, start, held, images, first_output: tokens.len(), tokens, stage: Stage::Within }
        };
        lacking.map(request).collect()
    }

    /// Returns the tokens of runs of one token each.
    fn appended(&self) -> Vec<Appended<'a>> {
        let appended = |(sequence, ids, _): &(SequenceId, &'a [u32], _)| {
            let held = &self.held[sequence];
            ids.iter().map(|&token| Appended { sequence: *sequence, token, held }).collect::<Vec<_>>()
        };
        self.runs.iter().flat_map(appended).collect()
    }
}
