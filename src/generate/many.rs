//! Generates several texts at once: one step computes a token of each.
//!
//! The common beginning of all prompts is computed once, in the caller's sequence. Each text
//! continues in a fork of it, which is closed when the text ends. The number of texts that run at
//! once is at most the number of tokens with logits in one step
//! ([`Limits::max_outputs`](super::Limits)); more would need further steps. The other texts start
//! when running ones end.

use std::{collections::VecDeque, ops::Range, time::Instant};

use super::{
    Completion, Decoder, GenerateRequest, LogitsFor, PlacedPrompt, PromptImages, StopReason,
    choice::{self, DecodingText},
    continuation::Continuation,
    decoder::{ChoiceAt, Choices, OpenRequest, shared_tokens},
    request::RequestPrompt,
    speculation::{Draft, DraftedText, SharedStep, TimedStep},
};
use crate::{Result, kv_cache::SequenceId, tokenizer::Tokenizer};

/// Generates a text for each request, several at a time, and returns them in the requests' order.
///
/// Each text equals the text of a [`Generation`](super::Generation) of its request, if the device
/// computes a token identically in steps of any size; see
/// [`Runner::generate_many`](crate::Runner::generate_many). `on_piece` is called with the index of
/// a request and the next piece of its text, and ends that text by returning false.
///
/// Afterwards `sequence` has the common beginning of all prompts, unless there is none or memory
/// was short.
///
/// # Errors
/// [`Error::Request`](crate::Error::Request) with the index of a request that fails: before any
/// computation for an invalid prompt or option, later if a token cannot be chosen. Errors of the
/// device. Unfinished texts are dropped.
pub fn generate_many<'p>(
    decoder: &mut Decoder,
    sequence: SequenceId,
    tokenizer: &Tokenizer,
    requests: impl IntoIterator<Item: Into<GenerateRequest<'p>>>,
    on_piece: impl FnMut(usize, &str) -> bool,
) -> Result<Vec<Completion>> {
    decoder.tokens(sequence)?;
    let mut priority = i8::MIN;
    let texts = requests.into_iter().enumerate().map(|(index, request)| {
        let request = request.into();
        priority = priority.max(request.options.priority);
        BatchText::new(index, request, decoder, tokenizer).map_err(|error| error.in_request(index))
    });
    let waiting = texts.collect::<Result<VecDeque<_>>>()?;
    let request = decoder.open_request(sequence, priority)?;
    let completions = vec![None; waiting.len()];
    let at_once = decoder.limits().max_outputs.max(1);
    let mut batch = Batch { decoder, request, waiting, running: vec![], completions, at_once, on_piece };
    batch.run(sequence)?;
    // Every text has ended, so every completion is set.
    Ok(std::mem::take(&mut batch.completions).into_iter().flatten().collect())
}

struct Batch<'a, F> {
    decoder: &'a mut Decoder,
    request: OpenRequest,
    waiting: VecDeque<BatchText>,
    running: Vec<RunningText>,
    completions: Vec<Option<Completion>>,
    /// The largest number of texts that run at once.
    at_once: usize,
    on_piece: F,
}

/// A text of the batch, waiting or running.
struct BatchText {
    /// Index of its request.
    index: usize,
    /// The ids of the prompt and of the text so far.
    ids: Vec<u32>,
    /// The images of the prompt.
    images: PromptImages,
    /// The salt of the prompt and the text.
    salt: Option<String>,
    continuation: Continuation,
    drafted: DraftedText,
    /// The text so far.
    output: String,
}

/// A running text and its sequence.
struct RunningText {
    sequence: SequenceId,
    text: BatchText,
}

impl RunningText {
    /// Drafts tokens for the next step.
    fn draft(&mut self, decoder: &mut Decoder, step: SharedStep) -> Result<Option<Draft>> {
        let Self { sequence, text: BatchText { ids, continuation, drafted, .. } } = self;
        if continuation.ids().len() == 1 && step.has_room() {
            drafted.start(decoder, *sequence, &ids[..ids.len() - 1], continuation)?;
        }
        drafted.draft(decoder, *sequence, ids, step, continuation)
    }

    /// Chooses the tokens that follow the text's tokens of a step, as far as these are right.
    /// `first` is the number of the first one in the step.
    fn choose(
        &mut self,
        decoder: &mut Decoder,
        choices: &Choices,
        first: usize,
        on_piece: &mut impl FnMut(usize, &str) -> bool,
    ) -> Result<()> {
        let Self { sequence, text } = self;
        loop {
            let output = first + text.drafted.accepted();
            let at = ChoiceAt { sequence: *sequence, len: text.ids.len(), output };
            let id = choice::choose(decoder, choices, at, &mut text.continuation)?;
            text.push(id, on_piece)?;
            let BatchText { drafted, continuation, .. } = text;
            if continuation.is_done() || !drafted.accept(decoder, *sequence, id, continuation)? {
                return drafted.settle(decoder, *sequence);
            }
        }
    }
}

/// The tokens of one text in a step.
struct TextRun {
    /// Index of the running text.
    text: usize,
    /// Range of the text's ids.
    tokens: Range<usize>,
}

impl<F: FnMut(usize, &str) -> bool> Batch<'_, F> {
    fn run(&mut self, sequence: SequenceId) -> Result<()> {
        self.encode_images()?;
        let mut common = self.compute_common(sequence)?;
        while !(self.waiting.is_empty() && self.running.is_empty()) {
            self.start_waiting(common)?;
            self.end_due()?;
            if self.running.is_empty() {
                continue;
            }
            match self.step() {
                Err(error) if error.is_out_of_memory() && self.running.len() > 1 => self.suspend_last()?,
                // The last running text has as much memory as it would have alone only if the
                // common beginning is dropped.
                Err(error) if error.is_out_of_memory() && common.is_some() => {
                    self.decoder.truncate(sequence, 0)?;
                    common = None;
                }
                stepped => stepped?,
            }
        }
        Ok(())
    }

    /// Encodes the images of all prompts, unless all texts are stopped meanwhile.
    fn encode_images(&self) -> Result<()> {
        let Self { waiting, .. } = self;
        let images = PromptImages {
            placed: waiting.iter().flat_map(|text| &text.images.placed).cloned().collect(),
            encoder: waiting.iter().find_map(|text| text.images.encoder.clone()),
        };
        images.encode(0, |_, _| !waiting.iter().all(|text| text.continuation.is_stopped()))?;
        Ok(())
    }

    /// Computes the common beginning of all prompts in `sequence`, and returns the sequence; `None`
    /// if there is no common beginning, or if the prompts have different salts.
    fn compute_common(&mut self, sequence: SequenceId) -> Result<Option<SequenceId>> {
        let Self { decoder, waiting, .. } = self;
        let Some(first) = waiting.front() else { return Ok(None) };
        let prompt = (first.ids.as_slice(), first.images.placed.as_slice());
        let shared = |text: &BatchText| shared_tokens(prompt, (text.before_last(), &text.images.placed));
        let common = waiting.iter().map(shared).min().unwrap_or(0);
        if common == 0 || waiting.iter().any(|text| text.salt != first.salt) {
            return Ok(None);
        }
        decoder.set_salt(sequence, first.salt.as_deref())?;
        let progress = |_, _| !waiting.iter().all(|text| text.continuation.is_stopped());
        let mut images = first.images.clone();
        images.placed.retain(|image| image.start < common);
        decoder.prefill_with_images(sequence, &first.ids[..common], &images, progress)?;
        Ok(Some(sequence))
    }

    fn start_waiting(&mut self, common: Option<SequenceId>) -> Result<()> {
        while self.running.len() < self.at_once
            && let Some(mut text) = self.waiting.pop_front()
        {
            let sequence = match common {
                Some(common) => self.decoder.fork(common)?,
                None => self.decoder.open(),
            };
            self.decoder.join_request(sequence, &self.request);
            self.decoder.set_salt(sequence, text.salt.as_deref())?;
            let begun = self.decoder.begin(sequence, text.before_last(), &text.images.placed)?;
            self.decoder.place_images(sequence, &text.images.placed)?;
            if text.continuation.ids().is_empty() {
                text.continuation.summary.cached_tokens = begun.cached;
                self.decoder.count_prompt(text.ids.len(), begun.cached);
            }
            self.running.push(RunningText { sequence, text });
        }
        Ok(())
    }

    /// Ends the texts that were stopped or have reached a limit, and closes the sequences of ended
    /// texts.
    fn end_due(&mut self) -> Result<()> {
        let context_length = self.decoder.context_length();
        let mut position = 0;
        while let Some(RunningText { text, .. }) = self.running.get_mut(position) {
            let has_room = text.ids.len() <= context_length;
            if !text.continuation.is_done()
                && let Some(rest) = text.continuation.end_if_due(has_room)
            {
                text.emit(&rest, &mut self.on_piece);
            }
            if !text.continuation.is_done() {
                position += 1;
                continue;
            }
            let RunningText { sequence, text } = self.running.remove(position);
            let index = text.index;
            self.completions[index] = Some(text.into_completion());
            self.decoder.close(sequence)?;
        }
        Ok(())
    }

    /// Computes one step, and chooses a token for each text with logits.
    fn step(&mut self) -> Result<()> {
        let runs = self.next_runs()?;
        let started = Instant::now();
        if runs.iter().all(|run| self.running[run.text].text.is_decoding(run.tokens.start)) {
            return self.decode(started);
        }
        let Self { decoder, running, on_piece, .. } = self;
        let vocab_size = decoder.limits().vocab_size;
        let is_last = |run: &TextRun| run.tokens.end == running[run.text].text.ids.len();
        let batch = runs.iter().map(|run| {
            let (RunningText { sequence, text }, logits_for) =
                (&running[run.text], if is_last(run) { LogitsFor::Last } else { LogitsFor::None });
            (*sequence, &text.ids[run.tokens.clone()], logits_for)
        });
        let logits = decoder.step(&batch.collect::<Vec<_>>())?;
        let elapsed = started.elapsed();
        let mut rows = logits.chunks_exact_mut(vocab_size);
        for TextRun { text, tokens } in runs {
            let text = &mut running[text].text;
            let summary = &mut text.continuation.summary;
            if tokens.start >= summary.prompt_tokens {
                summary.decode += elapsed;
            } else {
                summary.prefill += elapsed;
            }
            if tokens.end == text.ids.len()
                && let Some(row) = rows.next()
            {
                let chosen = text.continuation.sample(row).and_then(|id| text.push(id, on_piece));
                chosen.map_err(|error| error.in_request(text.index))?;
            }
        }
        Ok(())
    }

    /// Computes a step of one token of each text, and chooses the next tokens.
    fn decode(&mut self, started: Instant) -> Result<()> {
        let Self { decoder, running, on_piece, .. } = self;
        let mut step = SharedStep { texts: running.len(), rows: running.len() };
        for RunningText { sequence, .. } in running.iter() {
            step.rows += decoder.missing(*sequence)?;
        }
        let drafts = running.iter_mut().map(|running| running.draft(decoder, step));
        let mut drafts = drafts.collect::<Result<Vec<_>>>()?;
        let mut tokens = tokens_of_step(running, &drafts);
        let stepped = Instant::now();
        let choices = match decode_tokens(decoder, running, &tokens) {
            // There may be memory for a step without drafts.
            Err(error) if error.is_out_of_memory() && drafts.iter().any(Option::is_some) => {
                drafts.fill_with(|| None);
                tokens = tokens_of_step(running, &drafts);
                decode_tokens(decoder, running, &tokens)?
            }
            choices => choices?,
        };
        let (time, elapsed) = (stepped.elapsed(), started.elapsed());
        let mut timed = TimedStep { step, time, usual: time };
        let missing = step.rows - step.texts;
        let mut first = 0;
        if let Some(RunningText { sequence, .. }) = running.first() {
            let rows = missing + tokens.iter().map(Vec::len).sum::<usize>();
            timed.usual = decoder.speculator(*sequence).1.record(rows, time);
        }
        for ((one, draft), tokens) in running.iter_mut().zip(drafts).zip(&tokens) {
            let BatchText { index, drafted, continuation, .. } = &mut one.text;
            let index = *index;
            continuation.summary.decode += elapsed;
            drafted.count_step(decoder, one.sequence, draft, timed, continuation);
            one.choose(decoder, &choices, first, on_piece).map_err(|error| error.in_request(index))?;
            first += tokens.len();
        }
        Ok(())
    }

    /// Returns the tokens of the next step: tokens of prompts if some are not computed yet, and
    /// else the last token of each text. A step never has both, because devices have different
    /// kernels for few and for many tokens.
    fn next_runs(&self) -> Result<Vec<TextRun>> {
        let mut room = self.decoder.limits().max_tokens;
        let (mut prefill, mut decode) = (vec![], vec![]);
        for (index, RunningText { sequence, text }) in self.running.iter().enumerate() {
            let held = self.decoder.tokens(*sequence)?.len();
            if text.is_decoding(held) {
                decode.push(TextRun { text: index, tokens: held..text.ids.len() });
            } else if room > 0 {
                let mut end = self.decoder.chunk_end(*sequence, held..text.ids.len(), room)?;
                if end == held && prefill.is_empty() {
                    // The step says that an image does not fit in it.
                    end = text.ids.len().min(held + room);
                }
                if end > held {
                    prefill.push(TextRun { text: index, tokens: held..end });
                    room -= end - held;
                }
            }
        }
        Ok(if prefill.is_empty() { decode } else { prefill })
    }

    /// Suspends the text that started last, and limits the number of running texts to the remaining
    /// ones.
    fn suspend_last(&mut self) -> Result<()> {
        let Some(RunningText { sequence, text }) = self.running.pop() else { return Ok(()) };
        self.waiting.push_front(text);
        self.at_once = self.running.len();
        self.decoder.close(sequence)
    }
}

/// Returns the last token of each text and its draft.
fn tokens_of_step(running: &[RunningText], drafts: &[Option<Draft>]) -> Vec<Vec<u32>> {
    let tokens = |(RunningText { text, .. }, draft): (&RunningText, &Option<Draft>)| {
        let drafted = draft.iter().flat_map(|draft| &draft.tokens);
        text.ids.last().into_iter().chain(drafted).copied().collect()
    };
    running.iter().zip(drafts).map(tokens).collect()
}

/// Runs a step that appends tokens to each text.
fn decode_tokens(decoder: &mut Decoder, running: &[RunningText], tokens: &[Vec<u32>]) -> Result<Choices> {
    let texts = running.iter().zip(tokens).map(|(RunningText { sequence, text }, tokens)| DecodingText {
        continuation: &text.continuation,
        sequence: *sequence,
        tokens,
    });
    choice::step(decoder, &texts.collect::<Vec<_>>())
}

/// Closes the sequences of texts that ended by an error or a panic of `on_piece`.
impl<F> Drop for Batch<'_, F> {
    fn drop(&mut self) {
        for RunningText { sequence, .. } in &self.running {
            // It can only fail after an error of the device, which the caller has received.
            _ = self.decoder.close(*sequence);
        }
    }
}

impl BatchText {
    fn new(index: usize, request: GenerateRequest<'_>, decoder: &Decoder, tokenizer: &Tokenizer) -> Result<Self> {
        let GenerateRequest { prompt, options, processors, drafters, stop_handles } = request;
        let prompt = match prompt {
            RequestPrompt::Given(prompt) => prompt.into_ids(tokenizer)?.into(),
            RequestPrompt::Placed(prompt) => prompt,
        };
        decoder.check_prompt(&prompt.ids)?;
        let continuation = Continuation::new(&prompt, tokenizer, &options, decoder.limits().vocab_size)?;
        let continuation = processors.into_iter().fold(continuation, Continuation::with_processor);
        let continuation = continuation.with_stop_handles(stop_handles);
        let PlacedPrompt { ids, images } = prompt;
        let drafted = DraftedText::new(options.speculation, drafters);
        let salt = options.cache_salt;
        Ok(Self { index, ids, images, salt, continuation, drafted, output: String::new() })
    }

    /// Returns the ids without the last one, which has to be computed for its logits.
    fn before_last(&self) -> &[u32] {
        &self.ids[..self.ids.len() - 1]
    }

    /// Returns whether only the last generated token is missing in a sequence of `held` tokens.
    fn is_decoding(&self, held: usize) -> bool {
        !self.continuation.ids().is_empty() && held + 1 == self.ids.len()
    }

    /// Adds a chosen token.
    fn push(&mut self, id: u32, on_piece: &mut impl FnMut(usize, &str) -> bool) -> Result<()> {
        self.ids.push(id);
        let piece = self.continuation.push(id)?;
        self.emit(&piece, on_piece);
        Ok(())
    }

    fn emit(&mut self, piece: &str, on_piece: &mut impl FnMut(usize, &str) -> bool) {
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
