//! The generation of several texts at once: one step computes a token of each.
//!
//! What all prompts begin with is computed once, in the caller's sequence; each text goes on in a
//! fork of it, which is closed when the text ends. At most as many texts run at once as one step
//! computes logits for ([`Limits::max_outputs`](super::Limits)): more would cost further steps.
//! Those that wait start as others end.

use std::{collections::VecDeque, ops::Range, time::Instant};

use super::{Completion, Decoder, GenerateRequest, StopReason, Wanted, continuation::Continuation};
use crate::{Result, kv_cache::SequenceId, tokenizer::Tokenizer};

/// Generates a text for each request, several at a time, and returns them in the requests' order.
///
/// Each text is the one that [`Generation`](super::Generation) makes of its request alone, as long
/// as the device computes a token alike in every step;
/// [`Runner::generate_many`](crate::Runner::generate_many) says where it does. `on_piece` gets
/// the number of a request and the next piece of its text, and ends that text by returning false.
///
/// `sequence` holds the common beginning of all prompts afterwards, unless they have none or memory
/// was short.
///
/// # Errors
/// [`Error::Request`](crate::Error::Request) with the number of a request that cannot be served:
/// before anything is computed for a prompt or an option that cannot be used, later for a text
/// whose tokens cannot be chosen. Whatever the device reports. Unfinished texts are then dropped.
pub fn generate_many<'p>(
    decoder: &mut Decoder,
    sequence: SequenceId,
    tokenizer: &Tokenizer,
    requests: impl IntoIterator<Item: Into<GenerateRequest<'p>>>,
    on_piece: impl FnMut(usize, &str) -> bool,
) -> Result<Vec<Completion>> {
    decoder.tokens(sequence)?;
    let texts = requests.into_iter().enumerate().map(|(index, request)| {
        Text::new(index, request.into(), decoder, tokenizer).map_err(|error| error.in_request(index))
    });
    let waiting = texts.collect::<Result<VecDeque<_>>>()?;
    let completions = vec![None; waiting.len()];
    let at_once = decoder.limits().max_outputs.max(1);
    let mut batch = Batch { decoder, waiting, live: vec![], completions, at_once, on_piece };
    batch.run(sequence)?;
    // Every text has ended.
    Ok(std::mem::take(&mut batch.completions).into_iter().flatten().collect())
}

struct Batch<'a, F> {
    decoder: &'a mut Decoder,
    waiting: VecDeque<Text>,
    live: Vec<Live>,
    completions: Vec<Option<Completion>>,
    /// The most texts that run at once.
    at_once: usize,
    on_piece: F,
}

/// A text that has begun or is yet to begin.
struct Text {
    /// The number of its request.
    index: usize,
    /// The ids of the prompt and of the text so far.
    known: Vec<u32>,
    continuation: Continuation,
    /// The text so far.
    output: String,
}

/// A text with a sequence.
struct Live {
    sequence: SequenceId,
    text: Text,
}

impl<F: FnMut(usize, &str) -> bool> Batch<'_, F> {
    fn run(&mut self, sequence: SequenceId) -> Result<()> {
        let mut common = self.compute_common(sequence)?;
        while !(self.waiting.is_empty() && self.live.is_empty()) {
            self.start_waiting(common)?;
            self.end_due()?;
            if self.live.is_empty() {
                continue;
            }
            match self.step() {
                Err(error) if error.is_out_of_memory() && self.live.len() > 1 => self.suspend_last()?,
                // The last text left needs as much as it would alone only without the beginning
                // that forks start from.
                Err(error) if error.is_out_of_memory() && common.is_some() => {
                    self.decoder.truncate(sequence, 0)?;
                    common = None;
                }
                stepped => stepped?,
            }
        }
        Ok(())
    }

    /// Makes `sequence` hold the common beginning of all prompts, and returns it unless there is
    /// none.
    fn compute_common(&mut self, sequence: SequenceId) -> Result<Option<SequenceId>> {
        let Self { decoder, waiting, .. } = self;
        let Some(first) = waiting.front() else { return Ok(None) };
        let shared = |text: &Text| first.known.iter().zip(text.before_last()).take_while(|(a, b)| a == b).count();
        let common = waiting.iter().map(shared).min().unwrap_or(0);
        if common == 0 {
            return Ok(None);
        }
        let going_on = |_, _| !waiting.iter().all(|text| text.continuation.is_stopped());
        decoder.prefill(sequence, &first.known[..common], going_on)?;
        Ok(Some(sequence))
    }

    fn start_waiting(&mut self, common: Option<SequenceId>) -> Result<()> {
        while self.live.len() < self.at_once
            && let Some(mut text) = self.waiting.pop_front()
        {
            let sequence = match common {
                Some(common) => self.decoder.fork(common)?,
                None => self.decoder.open(),
            };
            if text.continuation.ids().is_empty() {
                text.continuation.summary.cached_tokens = self.decoder.tokens(sequence)?.len();
            }
            self.live.push(Live { sequence, text });
        }
        Ok(())
    }

    /// Ends the texts that are due before their next token, and closes the sequences of all that
    /// have ended.
    fn end_due(&mut self) -> Result<()> {
        let context_length = self.decoder.context_length();
        let mut at = 0;
        while let Some(Live { text, .. }) = self.live.get_mut(at) {
            let has_room = text.known.len() <= context_length;
            if !text.continuation.is_done()
                && let Some(rest) = text.continuation.end_if_due(has_room)
            {
                text.give(&rest, &mut self.on_piece);
            }
            if !text.continuation.is_done() {
                at += 1;
                continue;
            }
            let Live { sequence, text } = self.live.remove(at);
            let index = text.index;
            self.completions[index] = Some(text.into_completion());
            self.decoder.close(sequence)?;
        }
        Ok(())
    }

    /// Computes one step and chooses a token of each text whose logits came of it.
    fn step(&mut self) -> Result<()> {
        let runs = self.next_runs()?;
        let started = Instant::now();
        if let ([Live { text, .. }], [(0, tokens)]) = (self.live.as_slice(), runs.as_slice())
            && text.is_decoding(tokens.start)
            && text.continuation.needs_few_logits()
        {
            return self.step_alone(started);
        }
        let Self { decoder, live, on_piece, .. } = self;
        let vocab_size = decoder.limits().vocab_size;
        let is_last = |(at, tokens): &(usize, Range<usize>)| tokens.end == live[*at].text.known.len();
        let batch = runs.iter().map(|run| {
            let (Live { sequence, text }, wanted) =
                (&live[run.0], if is_last(run) { Wanted::Last } else { Wanted::None });
            (*sequence, &text.known[run.1.clone()], wanted)
        });
        let logits = decoder.step(&batch.collect::<Vec<_>>())?;
        let elapsed = started.elapsed();
        let mut rows = logits.chunks_exact_mut(vocab_size);
        for (at, tokens) in runs {
            let text = &mut live[at].text;
            let summary = &mut text.continuation.summary;
            match tokens.start >= summary.prompt_tokens {
                true => summary.decode += elapsed,
                false => summary.prefill += elapsed,
            }
            if tokens.end == text.known.len()
                && let Some(row) = rows.next()
            {
                let chosen = text.continuation.sample(row).and_then(|id| text.push(id, on_piece));
                chosen.map_err(|error| error.in_request(text.index))?;
            }
        }
        Ok(())
    }

    /// As [`step`](Self::step) for the only live text, where the device can choose its token or
    /// find the largest logits.
    fn step_alone(&mut self, started: Instant) -> Result<()> {
        let Self { decoder, live, on_piece, .. } = self;
        let Some(Live { sequence, text }) = live.first_mut() else { return Ok(()) };
        let Some(&last) = text.known.last() else { return Ok(()) };
        let id = text.continuation.step(decoder, *sequence, last)?;
        text.continuation.summary.decode += started.elapsed();
        text.push(id, on_piece).map_err(|error| error.in_request(text.index))
    }

    /// The tokens of the next step, as ranges of live texts' ids: as much of prompts as a step
    /// takes, where some are to be read, and else the last token of each text. The two are kept
    /// apart because devices have kernels for few tokens.
    fn next_runs(&self) -> Result<Vec<(usize, Range<usize>)>> {
        let mut room = self.decoder.limits().max_tokens;
        let (mut reading, mut decoding) = (vec![], vec![]);
        for (at, Live { sequence, text }) in self.live.iter().enumerate() {
            let held = self.decoder.tokens(*sequence)?.len();
            if text.is_decoding(held) {
                decoding.push((at, held..text.known.len()));
            } else if room > 0 {
                let end = text.known.len().min(held + room);
                reading.push((at, held..end));
                room -= end - held;
            }
        }
        Ok(if reading.is_empty() { decoding } else { reading })
    }

    /// Has the text that began last wait, and from then on no more texts run at once than are left.
    fn suspend_last(&mut self) -> Result<()> {
        let Some(Live { sequence, text }) = self.live.pop() else { return Ok(()) };
        self.waiting.push_front(text);
        self.at_once = self.live.len();
        self.decoder.close(sequence)
    }
}

/// Closes the sequences of texts that an error, or a panic of `on_piece`, has cut off.
impl<F> Drop for Batch<'_, F> {
    fn drop(&mut self) {
        for Live { sequence, .. } in &self.live {
            // Where that fails the device has, whose error the caller was given.
            _ = self.decoder.close(*sequence);
        }
    }
}

impl Text {
    fn new(index: usize, request: GenerateRequest<'_>, decoder: &Decoder, tokenizer: &Tokenizer) -> Result<Self> {
        let GenerateRequest { prompt, options, processors, stop_handles } = request;
        let known = prompt.into_ids(tokenizer)?;
        decoder.check_prompt(&known)?;
        let continuation = Continuation::new(&known, tokenizer, &options, decoder.limits().vocab_size)?;
        let continuation = processors.into_iter().fold(continuation, Continuation::with_processor);
        let continuation = continuation.with_stop_handles(stop_handles);
        Ok(Self { index, known, continuation, output: String::new() })
    }

    /// The ids of the prompt but for the last, which has to be computed for its logits.
    fn before_last(&self) -> &[u32] {
        &self.known[..self.known.len() - 1]
    }

    /// Whether, with so many ids in its sequence, the text lacks nothing but its last token.
    fn is_decoding(&self, held: usize) -> bool {
        !self.continuation.ids().is_empty() && held + 1 == self.known.len()
    }

    /// Takes the next token.
    fn push(&mut self, id: u32, on_piece: &mut impl FnMut(usize, &str) -> bool) -> Result<()> {
        self.known.push(id);
        let piece = self.continuation.push(id)?;
        self.give(&piece, on_piece);
        Ok(())
    }

    fn give(&mut self, piece: &str, on_piece: &mut impl FnMut(usize, &str) -> bool) {
        if piece.is_empty() {
            return;
        }
        self.output += piece;
        if !on_piece(self.index, piece) && !self.continuation.is_done() {
            self.continuation.end(StopReason::Caller);
        }
    }

    fn into_completion(self) -> Completion {
        let (ids, logprobs, summary) = self.continuation.into_parts();
        Completion { text: self.output, ids, logprobs, summary }
    }
}
