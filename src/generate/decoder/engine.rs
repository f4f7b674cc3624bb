//! The state that all decoders of a model share: the executable, and the cache of their sequences.

use std::time::Instant;

use super::{
    Limits,
    admission::{Admission, Claim, Shortage},
    batch::{BatchPosition, Request, TokenSpan, take_spans},
    mtp::{ComputedTokens, MtpHead},
    pace::Pace,
    pipelined::{PipelinedSteps, not_a_number},
    prefixes::KeptPrefixes,
    sequence::{RunImages, StepRows},
};
use crate::{
    Error, Result,
    backend::{Executable, Run, Step, TopLogits},
    generate::Statistics,
    kv_cache::{CacheRoom, KvCache, PageId, SequenceId, Stage, StateUpdate},
    sampler::largest,
};

/// Runs the steps of all decoders, one at a time.
pub(super) struct Engine {
    pub executable: Box<dyn Executable>,
    pub cache: KvCache,
    /// The head that drafts tokens, if the model has one.
    pub(super) head: Option<MtpHead>,
    /// Page copies that the next step has to make.
    pub(super) copies: Vec<(PageId, PageId)>,
    /// The beginnings of texts that are kept for later ones.
    pub(super) prefixes: KeptPrefixes,
    /// Steps that were started before a caller asked for them.
    pub(super) pipelined: PipelinedSteps,
    /// The places of sequences in the cache.
    pub(super) admission: Admission,
    /// Counts of the work so far; steps include failed ones.
    pub(super) work: Statistics,
    /// The pace of steps that several calls share.
    pub(super) pace: Pace,
}

/// The buffers for the logits of a call.
pub(super) struct OutputBuffers<'a> {
    pub logits: &'a mut Vec<f32>,
    /// The largest logits of each output, if the device has selected them; `logits` is then empty.
    pub top: &'a mut Vec<TopLogits>,
    /// Number of largest logits of each output to return; `None` for all logits.
    pub top_k: Option<usize>,
    /// The most probable token of each output, if only these are wanted; `logits` is then empty.
    pub most_probable: Option<&'a mut Vec<u32>>,
    /// Whether a device that does not choose the most probable tokens returns all logits.
    pub leaves_choice: bool,
}

impl Engine {
    pub fn new(executable: Box<dyn Executable>, cache: KvCache) -> Self {
        Self {
            executable,
            cache,
            head: None,
            copies: vec![],
            prefixes: KeptPrefixes::default(),
            pipelined: PipelinedSteps::default(),
            admission: Admission::default(),
            work: Statistics::default(),
            pace: Pace::default(),
        }
    }

    /// Returns the counts of the work so far, and the present state of the cache.
    pub fn statistics(&self) -> Statistics {
        let (kept_pages, kept_bytes) = self.cache.kept_pages();
        Statistics {
            sequences: self.cache.open_sequences(),
            pages: self.cache.pages_in_use() - kept_pages,
            cache_bytes: self.cache.bytes() - kept_bytes,
            kept_pages,
            kept_bytes,
            cache_limit: self.cache.limit_bytes(),
            ..self.work
        }
    }

    /// Computes requests of a call. After an error, the cache has each sequence up to the start of
    /// its request, or less.
    pub fn compute(
        &mut self,
        requests: &[Request],
        limits: Limits,
        mut outputs: OutputBuffers,
        claim: &Claim<'_>,
    ) -> Result<(), Shortage> {
        let done = self.try_compute(requests, limits, &mut outputs, claim);
        if done.is_err() {
            self.collect_copies();
            for request in requests {
                self.truncate(request.sequence, request.held, request.start)?;
            }
        }
        done
    }

    /// Opens a sequence with the tokens of another one.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        self.discard_pipelined(id)?;
        let fork = self.cache.fork(id)?;
        self.head.iter_mut().for_each(|head| head.fork(id, fork));
        self.admission.fork(id, fork);
        Ok(fork)
    }

    /// Closes a sequence.
    pub fn close(&mut self, id: SequenceId) -> Result<()> {
        self.discard_pipelined(id)?;
        self.head.iter_mut().for_each(|head| head.close(id));
        self.admission.close(id);
        self.cache.close(id)
    }

    /// Shortens a sequence to `len` tokens, of which the cache may keep `cached`.
    pub fn truncate(&mut self, id: SequenceId, len: usize, cached: usize) -> Result<()> {
        let mut kept = self.cache.truncate(id, cached.min(len))?;
        while let Some(head) = &mut self.head {
            let known = head.truncate(id, len, kept);
            if known == kept {
                break;
            }
            kept = self.cache.truncate(id, known)?;
        }
        Ok(())
    }

    /// Drafts up to `max` tokens after `ids`, of which the sequence has all but the last one.
    pub fn draft(&mut self, id: SequenceId, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
        let (Some(head), Some((last, held))) = (&mut self.head, ids.split_last()) else { return Ok(()) };
        if max == 0 || !head.can_draft(id, held.len()) {
            return Ok(());
        }
        let cached = self.cache.len(id)?;
        let new = (held.len() + max - 1).saturating_sub(cached);
        match self.cache.extend(id, new.max(1)) {
            // A step without drafts may still have memory.
            Err(error) if error.is_out_of_memory() => return Ok(()),
            extended => extended?,
        };
        let copies = self.cache.take_copies();
        head.add_copies(&copies);
        self.copies.extend(copies);
        let drafted = head.draft(&self.cache, id, *last, [max, cached], draft);
        self.cache.truncate(id, cached)?;
        drafted
    }

    fn try_compute(
        &mut self,
        requests: &[Request],
        limits: Limits,
        outputs: &mut OutputBuffers,
        claim: &Claim<'_>,
    ) -> Result<(), Shortage> {
        outputs.logits.clear();
        outputs.top.clear();
        // All others go on at the end of their cache.
        for request in requests.iter().filter(|request| request.start == 0) {
            self.truncate(request.sequence, 0, 0)?;
        }
        let requests: Vec<_> = requests.iter().collect();
        let mut next = BatchPosition::default();
        while next.request < requests.len() {
            let spans = take_spans(&requests, &mut next, limits);
            if spans.is_empty() {
                let Limits { max_tokens, .. } = limits;
                let what =
                    format!("an image has more rows than the {max_tokens} tokens of a step, which must have all");
                return Err(Error::argument("prefill_chunk", what).into());
            }
            let states = self.reserve(&requests, &spans, claim)?;
            self.run(&requests, &spans, &states, limits.vocab_size, outputs)?;
        }
        Ok(())
    }

    /// Extends the sequences of spans in the cache, and returns the states that their runs read and
    /// write. After an error, some are extended.
    pub(super) fn reserve(
        &mut self,
        requests: &[&Request],
        spans: &[TokenSpan],
        claim: &Claim<'_>,
    ) -> Result<Vec<Option<StateUpdate>>, Shortage> {
        let mut states = Vec::with_capacity(spans.len());
        for &TokenSpan { request, from, len } in spans {
            let &&Request { sequence, start, stage, .. } = &requests[request];
            while let Err(error) = self.cache.extend(sequence, len) {
                let Error::Memory { needed, limit, .. } = error else { return Err(error.into()) };
                self.make_room(CacheRoom { page_bytes: needed - limit, states: 0 }, error, claim)?;
            }
            let state = loop {
                match self.cache.advance(sequence, start + from + len, stage) {
                    Err(error) if error.is_out_of_memory() => {
                        self.make_room(CacheRoom { page_bytes: 0, states: 1 }, error, claim)?;
                    }
                    advanced => break advanced?,
                }
            };
            states.push(state);
        }
        Ok(states)
    }

    /// Ends the preparation of a step: takes the copies that it has to make.
    pub(super) fn collect_copies(&mut self) {
        let copies = self.cache.take_copies();
        self.head.iter_mut().for_each(|head| head.add_copies(&copies));
        self.copies.extend(copies);
    }

    /// Runs one step of these spans, whose memory is reserved, and appends its outputs to the
    /// buffers.
    pub(super) fn run(
        &mut self,
        requests: &[&Request],
        spans: &[TokenSpan],
        states: &[Option<StateUpdate>],
        vocab_size: usize,
        buffers: &mut OutputBuffers,
    ) -> Result<()> {
        let (mut tokens, mut outputs, mut runs) = (vec![], vec![], Vec::with_capacity(spans.len()));
        self.collect_copies();
        let images = spans.iter().map(|span| {
            let request = requests[span.request];
            RunImages::new(request.images, span.range(request))
        });
        let images: Vec<_> = images.collect();
        let mut rows = StepRows::default();
        for ((span, state), images) in spans.iter().zip(states).zip(&images) {
            let &TokenSpan { request, from, len } = span;
            let request = requests[request];
            let with_logits = request.first_output.max(from)..from + len;
            outputs.extend(with_logits.map(|index| tokens.len() + index - from));
            rows.push(request.images, span.range(request), tokens.len())?;
            tokens.extend_from_slice(&request.tokens[from..from + len]);
            let pages = self.cache.pages(request.sequence)?;
            let (rotary, spans) = (images.rotary.as_slice(), images.spans.as_slice());
            runs.push(Run { len, start: request.start + from, pages, state: state.as_ref(), rotary, spans });
        }
        let step = Step {
            tokens: &tokens,
            runs: &runs,
            outputs: &outputs,
            copies: &self.copies,
            rows: rows.input(),
            ..Step::default()
        };
        self.work.steps += 1;
        let started = Instant::now();
        let Self { executable, .. } = self;
        match (&mut buffers.most_probable, buffers.top_k) {
            (Some(chosen), _) => match executable.most_probable(&step)? {
                Some(ids) => {
                    ids.into_iter().try_for_each(|id| id.map(|id| chosen.push(id)).ok_or_else(not_a_number))?
                }
                None if buffers.leaves_choice => buffers.logits.extend_from_slice(executable.run(&step)?),
                None => {
                    let rows = executable.run(&step)?.chunks(vocab_size);
                    rows.map(largest).try_for_each(|best| best.map(|best| chosen.push(best.id)))?;
                }
            },
            (None, top_k) => match top_k.map(|count| executable.best(&step, count)).transpose()?.flatten() {
                Some(top) => buffers.top.extend_from_slice(top),
                None => buffers.logits.extend_from_slice(executable.run(&step)?),
            },
        }
        self.work.add_step(tokens.len(), started.elapsed());
        // Kept until a step succeeds: after a failure, the next step has to make the copies.
        self.copies.clear();
        self.pass_to_head(requests, spans, &tokens)
    }

    /// Passes the hidden rows of a step to the head.
    fn pass_to_head(&mut self, requests: &[&Request], spans: &[TokenSpan], tokens: &[u32]) -> Result<()> {
        let Some(head) = &mut self.head else { return Ok(()) };
        let hidden = self.executable.hidden()?;
        let width = hidden.len() / tokens.len();
        let mut first = 0;
        for &TokenSpan { request, from, len } in spans {
            let request = requests[request];
            let checkpoints = self.cache.checkpoints(request.sequence)?;
            let end = matches!(request.stage, Stage::Prompt { .. }).then_some(request.start + from + len);
            let computed = ComputedTokens {
                start: request.start + from,
                ids: &tokens[first..first + len],
                hidden: &hidden[first * width..(first + len) * width],
                checkpoints: &checkpoints.chain(end).collect::<Vec<_>>(),
            };
            head.append(&self.cache, request.sequence, &computed, request.images)?;
            first += len;
        }
        Ok(())
    }
}
