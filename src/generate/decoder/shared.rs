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
    admission::{DecoderRanks, Shortage},
    batch::TokenSpan,
    call::StepRowsAt,
    engine::{Engine, OutputBuffers},
    pipelined::not_a_number,
    shared_call::{SharedCall, StepPart},
};
use crate::{
    Error, Result,
    backend::TopLogits,
    kv_cache::{CacheRoom, StateUpdate},
};

/// The outputs of a step.
#[derive(Default)]
struct StepOutputs {
    logits: Vec<f32>,
    top: Vec<TopLogits>,
    most_probable: Vec<u32>,
}

impl Engine {
    /// Computes the next step of calls, which are in the order of their places. Calls that have
    /// ended then have a result. Returns false if all calls wait for memory.
    pub fn step_together(&mut self, calls: &mut [SharedCall<'_, '_>]) -> bool {
        let most = self.executable.exact_tokens();
        let is_apart = |call: &SharedCall<'_, '_>| call.has_images() || call.new_tokens() > most;
        let ranks = self.admission.ranks();
        self.admit_calls(calls, &ranks);
        let alone = calls.len() == 1 && calls[0].is_new() && !(calls[0].is_divisible() && self.pace.decodes());
        while let Some(first) = calls.iter_mut().find(|call| call.is_ready()).filter(|first| alone || is_apart(first)) {
            first.run_alone(self);
            if !first.waits {
                return true;
            }
        }
        for call in calls.iter_mut().filter(|call| call.is_ready() && call.is_new() && !is_apart(call)) {
            if let Err(error) = call.start(self) {
                call.result = Some(Err(error));
            }
        }
        let (parts, prompt_tokens) = self.parts_of_step(calls, most);
        if parts.is_empty() {
            // The first call exceeds a step.
            let first = calls.iter_mut().find(|call| call.is_ready());
            return first.is_some_and(|first| {
                first.run_alone(self);
                !first.waits
            }) || calls.iter().any(|call| call.result.is_some());
        }
        let (parts, states) = self.reserve_parts(calls, parts, &ranks);
        if parts.is_empty() {
            self.collect_copies();
            return calls.iter().any(|call| call.result.is_some());
        }
        let started = Instant::now();
        match self.run_parts(calls, &parts, &states) {
            Ok(outputs) => {
                match parts.iter().map(StepPart::tokens).sum::<usize>() > prompt_tokens {
                    true => self.pace.record(prompt_tokens, started.elapsed()),
                    false => self.pace.record_prompt(),
                }
                self.work.most_calls = self.work.most_calls.max(parts.len());
                self.distribute(calls, &parts, &outputs);
            }
            // The error may be one call's, such as a lack of memory.
            Err(_) => {
                parts.iter().for_each(|part| calls[part.call].run_alone(self));
                return parts.iter().any(|part| !calls[part.call].waits);
            }
        }
        true
    }

    /// Lets new calls have memory in the order of their ranks, as far as the cache has room for
    /// them beside the calls that have started.
    fn admit_calls(&mut self, calls: &mut [SharedCall<'_, '_>], ranks: &DecoderRanks) {
        let mut promised = CacheRoom::default();
        let mut new = vec![];
        for (index, call) in calls.iter_mut().enumerate() {
            call.has_waited = mem::take(&mut call.waits);
            if !call.is_intact(self)
                && let Err(error) = call.restart(self)
            {
                call.result = Some(Err(error));
            }
            let claim = call.call.claim();
            if call.is_new() && !claim.has_started(&self.cache) {
                new.push((claim.rank_in(ranks), index));
            } else {
                promised = promised.plus(claim.lacking(&self.cache).unwrap_or_default());
            }
        }
        new.sort_unstable();
        let mut is_full = false;
        for (_, index) in new {
            let claim = calls[index].call.claim();
            let lacking = claim.lacking(&self.cache).unwrap_or_default();
            is_full = is_full || matches!(self.admit(&claim, promised), Err(Shortage::Waits(_)));
            calls[index].waits = is_full;
            promised = promised.plus(lacking);
        }
        self.refuse(calls);
    }

    /// Refuses the last of the requests that wait for their first memory, if they are too many.
    fn refuse(&self, calls: &mut [SharedCall<'_, '_>]) {
        let limit = self.admission.max_waiting;
        let mut waiting = calls.iter().filter(|call| call.is_queued && call.waits).count();
        let is_new = |call: &&mut SharedCall<'_, '_>| call.waits && !call.is_queued && !call.call.claim().is_admitted();
        for call in calls.iter_mut().filter(is_new) {
            call.is_queued = waiting < limit;
            if call.is_queued {
                waiting += 1;
            } else {
                call.result = Some(Err(Error::Busy { limit }));
            }
        }
    }

    /// Reserves the memory of parts, in the order of the ranks of their calls. Returns the parts
    /// that have it, and the states of each.
    fn reserve_parts(
        &mut self,
        calls: &mut [SharedCall<'_, '_>],
        parts: Vec<StepPart>,
        ranks: &DecoderRanks,
    ) -> (Vec<StepPart>, Vec<Option<StateUpdate>>) {
        let mut order: Vec<_> = (0..parts.len()).collect();
        order.sort_by_cached_key(|index| calls[parts[*index].call].call.claim().rank_in(ranks));
        let (mut beside, mut reserved) = (vec![], vec![None; parts.len()]);
        for index in order {
            let (part, call) = (&parts[index], &mut calls[parts[index].call]);
            // Another call of this step may have taken its memory.
            if !call.is_intact(self) {
                continue;
            }
            match call.reserve(self, part, &beside) {
                Ok(states) => {
                    beside.extend(call.call.runs.iter().map(|(id, ..)| *id));
                    reserved[index] = Some(states);
                }
                Err(shortage) => call.take(Err(shortage)),
            }
        }
        let (parts, states): (Vec<_>, Vec<_>) =
            parts.into_iter().zip(reserved).filter_map(|(part, states)| Some((part, states?))).unzip();
        (parts, states.concat())
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
        let all = || calls.iter().enumerate().filter(|(_, call)| call.is_ready() && !call.requests.is_empty());
        let ready = || all().filter(|(_, call)| !call.has_waited).chain(all().filter(|(_, call)| call.has_waited));
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
    fn run_parts(
        &mut self,
        calls: &[SharedCall<'_, '_>],
        parts: &[StepPart],
        states: &[Option<StateUpdate>],
    ) -> Result<StepOutputs> {
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
        self.run(&requests, &spans, states, vocab_size, &mut buffers)?;
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
            call.rows = StepRowsAt { step: self.work.steps, first };
            first += count;
            shared.next = next;
            if next.request < shared.requests.len() {
                continue;
            }
            if shared.restores {
                // Its own requests come next.
                shared.requests.clear();
            } else {
                shared.result = Some(failed.map_or(Ok(()), Err));
            }
        }
    }
}

/// Returns the most probable tokens; `None` if a logit is NaN.
fn chosen(top: &[TopLogits]) -> Option<Vec<u32>> {
    top.iter().map(|top| top.best.first().filter(|best| !best.logit.is_nan()).map(|best| best.id)).collect()
}
