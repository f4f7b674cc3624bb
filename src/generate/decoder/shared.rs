//! Computes the calls of several callers in common steps.
//!
//! A step has the tokens of all calls with few tokens, such as decoding, and then pieces of
//! prompts, as many tokens as lengthen the step by half at most. Results are those of each call
//! alone, because the bits of a token's logits do not depend on the other tokens: on a CPU in any
//! step, on a GPU in steps of up to 16 tokens. On a GPU, calls with more tokens have steps of their
//! own.

use std::{mem, time::Instant};

use super::{
    Limits, StepOutput,
    batch::{BatchPosition, Request, TokenSpan, take_spans},
    call::{StepCall, StepRowsAt},
    engine::{Engine, OutputBuffers},
    pipelined::not_a_number,
};
use crate::{Result, backend::TopLogits, profile::FEW_ROWS};

/// A call that takes part in common steps.
pub(super) struct SharedCall<'c, 'a> {
    call: &'c mut StepCall<'a>,
    /// The requests of the call, after its first step.
    requests: Vec<Request<'a>>,
    /// The next token to compute.
    next: BatchPosition,
    /// The result, when the call has ended.
    pub result: Option<Result<()>>,
}

/// The part of a call in a step.
struct StepPart {
    /// Index of the call.
    call: usize,
    /// The next token of the call after the step.
    next: BatchPosition,
    spans: Vec<TokenSpan>,
    outputs: usize,
}

/// The outputs of a step.
#[derive(Default)]
struct StepOutputs {
    logits: Vec<f32>,
    top: Vec<TopLogits>,
    most_probable: Vec<u32>,
}

impl<'c, 'a> SharedCall<'c, 'a> {
    pub fn new(call: &'c mut StepCall<'a>) -> Self {
        Self { call, requests: vec![], next: BatchPosition::default(), result: None }
    }

    fn is_new(&self) -> bool {
        self.requests.is_empty() && self.result.is_none()
    }

    /// Returns the number of tokens to append.
    fn new_tokens(&self) -> usize {
        self.call.runs.iter().map(|(_, tokens, _)| tokens.len()).sum()
    }

    /// Returns whether several steps may compute the call. The results of others refer to one step.
    fn is_divisible(&self) -> bool {
        self.call.is_plain() && self.remaining() > FEW_ROWS
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
    fn has_images(&self) -> bool {
        self.call.runs.iter().any(|(id, ..)| self.call.held.get(id).is_some_and(|held| !held.images.is_empty()))
    }

    /// Prepares the first step of the call.
    fn start(&mut self, engine: &mut Engine) -> Result<()> {
        self.call.logits.clear();
        self.call.top.clear();
        let requests = self.call.requests(engine)?;
        for request in requests.iter().filter(|request| request.start == 0) {
            engine.truncate(request.sequence, 0, 0)?;
        }
        self.requests = requests;
        Ok(())
    }

    /// Computes the call in steps of its own.
    fn run_alone(&mut self, engine: &mut Engine) {
        let requests = mem::take(&mut self.requests);
        let truncated =
            requests.iter().try_for_each(|request| engine.truncate(request.sequence, request.held, request.start));
        self.result = Some(truncated.and_then(|()| self.call.run_alone(engine)));
    }

    /// Returns the call's part of a step with room for `room` tokens and outputs, if it has one.
    fn part(&self, index: usize, limits: Limits, divides: bool) -> Option<StepPart> {
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

impl StepPart {
    fn tokens(&self) -> usize {
        self.spans.iter().map(|span| span.len).sum()
    }
}

impl Engine {
    /// Computes the next step of calls, which are in the order of their arrival. Calls that have
    /// ended then have a result.
    pub fn step_together(&mut self, calls: &mut [SharedCall<'_, '_>]) {
        let most = self.executable.exact_tokens();
        let is_apart = |call: &SharedCall<'_, '_>| call.has_images() || call.new_tokens() > most;
        let alone = calls.len() == 1 && calls[0].is_new() && !(calls[0].is_divisible() && self.pace.decodes());
        if let Some(first) = calls.first_mut().filter(|first| alone || is_apart(first)) {
            return first.run_alone(self);
        }
        for call in calls.iter_mut().filter(|call| call.is_new() && !is_apart(call)) {
            if let Err(error) = call.start(self) {
                call.result = Some(Err(error));
            }
        }
        let (parts, prompt_tokens) = self.parts_of_step(calls, most);
        if parts.is_empty() {
            // The first call exceeds a step.
            if let Some(first) = calls.iter_mut().find(|call| call.result.is_none()) {
                first.run_alone(self);
            }
            return;
        }
        let started = Instant::now();
        match self.run_parts(calls, &parts) {
            Ok(outputs) => {
                match parts.iter().map(StepPart::tokens).sum::<usize>() > prompt_tokens {
                    true => self.pace.record(prompt_tokens, started.elapsed()),
                    false => self.pace.record_prompt(),
                }
                self.most_calls = self.most_calls.max(parts.len());
                self.distribute(calls, &parts, &outputs);
            }
            // The error may be one call's, such as a lack of memory.
            Err(_) => parts.iter().for_each(|part| calls[part.call].run_alone(self)),
        }
    }

    /// Returns the parts of the next step, and the number of their tokens that belong to prompts.
    fn parts_of_step(&self, calls: &[SharedCall<'_, '_>], most: usize) -> (Vec<StepPart>, usize) {
        let Some(limits) = calls.first().map(|call| call.call.limits) else { return (vec![], 0) };
        let mut left = Limits { max_tokens: limits.max_tokens.min(most), ..limits };
        let mut parts: Vec<StepPart> = vec![];
        let take = |parts: &mut Vec<StepPart>, left: &mut Limits, part: StepPart| {
            left.max_tokens -= part.tokens();
            left.max_outputs -= part.outputs;
            parts.push(part);
        };
        let ready = || calls.iter().enumerate().filter(|(_, call)| !call.requests.is_empty());
        for (index, call) in ready().filter(|(_, call)| !call.is_divisible()) {
            if let Some(part) = call.part(index, left, false) {
                take(&mut parts, &mut left, part);
            }
        }
        let room = left.max_tokens;
        let piece = if parts.is_empty() && !self.pace.decodes() { room } else { self.pace.piece().min(room) };
        left.max_tokens = piece;
        for (index, call) in ready().filter(|(_, call)| call.is_divisible()) {
            if let Some(part) = call.part(index, left, true) {
                take(&mut parts, &mut left, part);
            }
        }
        (parts, piece - left.max_tokens)
    }

    /// Runs a step of these parts.
    fn run_parts(&mut self, calls: &[SharedCall<'_, '_>], parts: &[StepPart]) -> Result<StepOutputs> {
        let (mut requests, mut spans) = (vec![], vec![]);
        for part in parts {
            let own = part.spans.iter().map(|span| TokenSpan { request: requests.len() + span.request, ..*span });
            spans.extend(own);
            requests.extend(&calls[part.call].requests);
        }
        let with_outputs = || parts.iter().filter(|part| part.outputs > 0).map(|part| calls[part.call].call.output);
        let is_greedy = with_outputs().all(|output| matches!(output, StepOutput::Greedy));
        let counts: Option<Vec<_>> = with_outputs().map(StepOutput::selected).collect();
        let top_k = counts.and_then(|counts| counts.into_iter().max());
        let vocab_size = calls[parts[0].call].call.limits.vocab_size;
        let StepOutputs { mut logits, mut top, mut most_probable } = StepOutputs::default();
        let mut buffers = OutputBuffers {
            logits: &mut logits,
            top: &mut top,
            top_k,
            most_probable: is_greedy.then_some(&mut most_probable),
            leaves_choice: true,
        };
        self.run(&requests, &spans, vocab_size, &mut buffers)?;
        Ok(StepOutputs { logits, top, most_probable })
    }

    /// Gives each call its outputs of a step.
    fn distribute(&self, calls: &mut [SharedCall<'_, '_>], parts: &[StepPart], outputs: &StepOutputs) {
        let StepOutputs { logits, top, most_probable } = outputs;
        let mut first = 0;
        for &StepPart { call, next, outputs: count, .. } in parts {
            let shared = &mut calls[call];
            let call = &mut *shared.call;
            let rows = first..first + count;
            let vocab_size = call.limits.vocab_size;
            if let Some(logits) = logits.get(rows.start * vocab_size..rows.end * vocab_size) {
                call.logits.extend_from_slice(logits);
            }
            let mut failed = None;
            match (call.output, top.get(rows.clone()), most_probable.get(rows)) {
                (StepOutput::Greedy, _, Some(chosen)) if count > 0 => call.most_probable = Some(chosen.to_vec()),
                (StepOutput::Greedy, Some(top), _) if count > 0 => match chosen(top) {
                    Some(chosen) => call.most_probable = Some(chosen),
                    None => failed = Some(not_a_number()),
                },
                (StepOutput::Top(_), Some(top), _) => call.top.extend_from_slice(top),
                (StepOutput::Logits | StepOutput::Top(_) | StepOutput::Greedy, ..) => {}
            }
            call.rows = StepRowsAt { step: self.steps, first };
            first += count;
            shared.next = next;
            if next.request == shared.requests.len() {
                shared.result = Some(failed.map_or(Ok(()), Err));
            }
        }
    }
}

/// Returns the most probable tokens; `None` if a logit is NaN.
fn chosen(top: &[TopLogits]) -> Option<Vec<u32>> {
    top.iter().map(|top| top.best.first().filter(|best| !best.logit.is_nan()).map(|best| best.id)).collect()
}
