//! Keeps the progress of a call that takes part in common steps.

use std::{cmp::Ordering, mem};

use super::{
    Limits,
    admission::{Claim, Shortage},
    batch::{BatchPosition, Request, TokenSpan, take_spans},
    call::StepCall,
    engine::Engine,
};
use crate::{
    Result,
    kv_cache::{SequenceId, StateUpdate},
    profile::FEW_ROWS,
};

/// A call that takes part in common steps.
pub(super) struct SharedCall<'c, 'a> {
    pub call: &'c mut StepCall<'a>,
    /// The requests of the call, after its first step.
    pub requests: Vec<Request<'a>>,
    /// The next token to compute.
    pub next: BatchPosition,
    /// Whether the requests compute tokens again that the cache has lost, before the call's own.
    pub restores: bool,
    /// The place of the call among those that wait, by priority and arrival.
    pub due: i64,
    /// Whether the call lacks memory of the cache.
    pub waits: bool,
    /// Whether it lacked memory for the step before. Then it leaves the room of a step to others.
    pub has_waited: bool,
    /// Whether the call is counted among those that wait for their first memory.
    pub is_queued: bool,
    /// The result, when the call has ended.
    pub result: Option<Result<()>>,
}

/// The part of a call in a step.
pub(super) struct StepPart {
    /// Index of the call.
    pub call: usize,
    /// The next token of the call after the step.
    pub next: BatchPosition,
    pub spans: Vec<TokenSpan>,
    pub outputs: usize,
}

impl StepPart {
    pub fn tokens(&self) -> usize {
        self.spans.iter().map(|span| span.len).sum()
    }
}

impl<'c, 'a> SharedCall<'c, 'a> {
    pub fn new(call: &'c mut StepCall<'a>, engine: &mut Engine) -> Self {
        let claim = call.claim();
        engine.admission.set_in_use(&claim, true);
        Self {
            call,
            requests: vec![],
            next: BatchPosition::default(),
            restores: false,
            due: engine.admission.due(&claim),
            waits: false,
            has_waited: false,
            is_queued: false,
            result: None,
        }
    }

    /// Ends the call, which has a result.
    pub fn end(self, engine: &mut Engine) {
        engine.admission.set_in_use(&self.call.claim(), false);
    }

    /// Returns whether the call can take part in the next step.
    pub fn is_ready(&self) -> bool {
        !self.waits && self.result.is_none()
    }

    pub fn is_new(&self) -> bool {
        self.requests.is_empty() && self.result.is_none()
    }

    /// Returns the number of tokens to append.
    pub fn new_tokens(&self) -> usize {
        self.call.runs.iter().map(|(_, tokens, _)| tokens.len()).sum()
    }

    /// Returns whether several steps may compute the call. The results of others refer to one step.
    pub fn is_divisible(&self) -> bool {
        (self.restores || self.call.is_plain()) && self.remaining() > FEW_ROWS
    }

    /// Returns the number of tokens that are not computed.
    fn remaining(&self) -> usize {
        if self.is_new() {
            return self.new_tokens();
        }
        let tokens = self.requests.iter().skip(self.next.request).map(|request| request.tokens.len());
        tokens.sum::<usize>().saturating_sub(self.next.token)
    }

    /// Returns whether the call has images, whose rows may have to be in one step.
    pub fn has_images(&self) -> bool {
        self.call.runs.iter().any(|(id, ..)| self.call.held.get(id).is_some_and(|held| !held.images.is_empty()))
    }

    /// Prepares the first step of the call.
    pub fn start(&mut self, engine: &mut Engine) -> Result<()> {
        self.call.logits.clear();
        self.call.top.clear();
        let requests = self.call.requests(engine)?;
        for request in requests.iter().filter(|request| request.start == 0) {
            engine.truncate(request.sequence, 0, 0)?;
        }
        let restoring = self.call.restoring(&requests);
        self.restores = !restoring.is_empty();
        self.requests = if self.restores { restoring } else { requests };
        self.next = BatchPosition::default();
        Ok(())
    }

    /// Computes the call in steps of its own.
    pub fn run_alone(&mut self, engine: &mut Engine) {
        let done = self.restart(engine).map_err(Shortage::from).and_then(|()| self.call.run_alone(engine));
        self.take(done);
    }

    /// Takes the result of the call, unless it has to wait for memory.
    pub fn take(&mut self, done: Result<(), Shortage>) {
        match done {
            Err(Shortage::Waits(_)) => self.waits = true,
            Err(Shortage::Fails(error)) => self.result = Some(Err(error)),
            Ok(()) => self.result = Some(Ok(())),
        }
    }

    /// Makes the call new again.
    pub fn restart(&mut self, engine: &mut Engine) -> Result<()> {
        let requests = mem::take(&mut self.requests);
        requests.iter().try_for_each(|request| engine.truncate(request.sequence, request.held, request.start))
    }

    /// Returns whether the cache has what earlier steps of the call have computed. Calls that come
    /// first may have taken it.
    pub fn is_intact(&self, engine: &Engine) -> bool {
        self.requests.iter().enumerate().all(|(index, request)| {
            let done = match index.cmp(&self.next.request) {
                Ordering::Less => request.tokens.len(),
                Ordering::Equal => self.next.token,
                Ordering::Greater => 0,
            };
            engine.cache.len(request.sequence).is_ok_and(|len| len == request.start + done)
        })
    }

    /// Reserves the memory of a part of the call. Without it, the cache is as it was before, or the
    /// call starts anew.
    pub fn reserve(
        &self,
        engine: &mut Engine,
        part: &StepPart,
        beside: &[SequenceId],
    ) -> Result<Vec<Option<StateUpdate>>, Shortage> {
        let requests: Vec<_> = self.requests.iter().collect();
        let claim = Claim { beside: beside.to_vec(), ..self.call.claim() };
        let reserved = engine.reserve(&requests, &part.spans, &claim);
        if reserved.is_err() {
            for span in &part.spans {
                let Request { sequence, start, held, .. } = self.requests[span.request];
                let before = start + span.from;
                engine.truncate(sequence, held.max(before), before)?;
            }
        }
        reserved
    }

    /// Returns the call's part of a step with room for `room` tokens and outputs, if it has one.
    pub fn part(&self, index: usize, limits: Limits, divides: bool) -> Option<StepPart> {
        let mut next = self.next;
        let spans = take_spans(&self.requests, &mut next, limits);
        let ends = next.request == self.requests.len();
        let outputs = |span: &TokenSpan| {
            let request = &self.requests[span.request];
            (span.from + span.len).saturating_sub(request.first_output.max(span.from))
        };
        let outputs = spans.iter().map(outputs).sum();
        ((ends || divides) && !spans.is_empty()).then_some(StepPart { call: index, next, spans, outputs })
    }
}
