//! Runs the steps of one text, with drafts where they pay.

use std::time::{Duration, Instant};

use super::{
    DraftSource, Drafter, Speculation, Speculator, StepTimes,
    speculator::{Draft, DraftBounds, max_drafts},
};
use crate::{
    Result,
    generate::{
        Decoder,
        choice::{self, DecodingText},
        continuation::Continuation,
        decoder::{ChoiceAt, Choices},
    },
    kv_cache::SequenceId,
};

/// The shortest text, in tokens, for which drafters are prepared.
const LEAST_TOKENS: usize = 4;

/// The decoder and the sequence of a text.
#[derive(Debug)]
pub(in crate::generate) struct TextSteps<'a> {
    pub decoder: &'a mut Decoder,
    pub sequence: SequenceId,
    speculation: Speculation,
    /// The text's own drafters, before those of the decoder.
    drafters: Vec<DraftSource>,
    /// The prompt and the text, once a token has followed the prompt.
    ids: Vec<u32>,
    last: LastStep,
    /// Number of accepted drafts of each step.
    accepted_per_step: Vec<usize>,
}

/// The last step.
#[derive(Debug, Default)]
struct LastStep {
    choices: Choices,
    draft: Option<VerifiedDraft>,
    /// Number of drafted tokens that the sampler chose, too.
    accepted: usize,
}

/// A draft that a step has computed.
#[derive(Debug)]
struct VerifiedDraft {
    len: usize,
    source: usize,
    /// Time for drafting and for the step.
    time: Duration,
}

impl<'a> TextSteps<'a> {
    pub fn new(decoder: &'a mut Decoder, sequence: SequenceId, speculation: Speculation) -> Self {
        let (drafters, ids, accepted_per_step) = (vec![], vec![], vec![]);
        Self { decoder, sequence, speculation, drafters, ids, last: LastStep::default(), accepted_per_step }
    }

    /// Adds a drafter before the model's.
    pub fn add_drafter(&mut self, drafter: impl Drafter + 'static) {
        self.drafters.push(DraftSource::new(drafter));
    }

    /// Calls `act` with the drafters of the text and of the decoder, the times of steps, and the ids
    /// so far.
    fn with_speculator<T>(&mut self, act: impl FnOnce(&mut Speculator, &StepTimes, &[u32]) -> T) -> T {
        let Self { decoder, sequence, drafters, ids, .. } = self;
        let (speculator, times) = decoder.speculator(*sequence);
        let own = drafters.len();
        speculator.add_first(drafters);
        let result = act(speculator, times, ids);
        drafters.extend(speculator.take_first(own));
        result
    }

    /// Returns the number of accepted drafts of each step so far.
    pub fn accepted_per_step(&self) -> &[usize] {
        &self.accepted_per_step
    }

    /// Prepares the drafters for a text that follows `prompt`.
    pub fn start(&mut self, prompt: &[u32], text: &mut Continuation) -> Result<()> {
        let off = if self.decoder.recomputes() {
            "every step computes all tokens again"
        } else if self.speculation == Speculation::Off {
            "the options switch drafts off"
        } else if text.room() < LEAST_TOKENS {
            "the text has too few tokens"
        } else {
            self.with_speculator(|speculator, _, _| speculator.start(prompt, &|| !text.is_stopped()))?;
            "no draft was found that would probably save time"
        };
        text.summary.speculation.off = Some(off.into());
        Ok(())
    }

    /// Returns whether the context has room for `token`, the last one of the text.
    pub fn has_room(&self, token: u32) -> Result<bool> {
        let is_there = self.decoder.drafted(self.sequence)?.first() == Some(&token);
        Ok(is_there || self.decoder.tokens(self.sequence)?.len() < self.decoder.context_length())
    }

    /// Chooses the token that follows `token`, the last one of the text.
    pub fn next_after(&mut self, token: u32, text: &mut Continuation) -> Result<u32> {
        if self.ids.is_empty() {
            self.ids.extend_from_slice(self.decoder.tokens(self.sequence)?);
        }
        self.ids.push(token);
        if !self.accept(token, text)? {
            self.settle()?;
            self.last = self.run(token, text)?;
        }
        let LastStep { choices, accepted, .. } = &self.last;
        let at = ChoiceAt { sequence: self.sequence, len: self.ids.len(), output: *accepted };
        choice::choose(self.decoder, choices, at, text)
    }

    /// Returns whether `token` is the next drafted one, and counts it then.
    fn accept(&mut self, token: u32, text: &mut Continuation) -> Result<bool> {
        if self.decoder.drafted(self.sequence)?.first() != Some(&token) {
            return Ok(false);
        }
        self.decoder.accept_drafted(self.sequence, 1);
        text.summary.speculation.count_accepted(self.last.accepted);
        self.accepted_per_step.last_mut().into_iter().for_each(|accepted| *accepted += 1);
        self.last.accepted += 1;
        Ok(true)
    }

    /// Removes the drafted tokens that were not accepted, and counts the draft.
    fn settle(&mut self) -> Result<()> {
        let LastStep { draft, accepted, .. } = std::mem::take(&mut self.last);
        if let Some(VerifiedDraft { len, source, time }) = draft {
            self.with_speculator(|speculator, times, _| speculator.count_draft(source, len, accepted, time, times));
        }
        self.decoder.remove_drafted(self.sequence)
    }

    /// Runs a step that appends `token`, and a draft if it probably saves time.
    fn run(&mut self, token: u32, text: &mut Continuation) -> Result<LastStep> {
        let rows = 1 + self.decoder.missing(self.sequence)?;
        if let Some(Draft { tokens: drafted, source, time: drafting }) = self.draft(rows, text)? {
            let tokens = [&[token], drafted.as_slice()].concat();
            match self.step(&tokens, rows + drafted.len(), text) {
                // There may be memory for a step without drafts.
                Err(error) if error.is_out_of_memory() => {}
                step => {
                    let (choices, time) = step?;
                    text.summary.speculation.count_draft(drafted.len(), time);
                    let draft = Some(VerifiedDraft { len: drafted.len(), source, time: time + drafting });
                    return Ok(LastStep { choices, draft, accepted: 0 });
                }
            }
        }
        let (choices, _) = self.step(&[token], rows, text)?;
        self.with_speculator(|speculator, _, _| speculator.count_plain());
        Ok(LastStep { choices, draft: None, accepted: 0 })
    }

    /// Drafts tokens that may follow the text, if they probably save time. A step without drafts has
    /// `rows` rows.
    fn draft(&mut self, rows: usize, text: &mut Continuation) -> Result<Option<Draft>> {
        if self.speculation == Speculation::Off || self.decoder.recomputes() {
            return Ok(None);
        }
        let began = Instant::now();
        let held = self.decoder.tokens(self.sequence)?.len();
        // The last drafted token and the one that is chosen after it have room, too.
        let room = text.room().saturating_sub(1).min(self.decoder.context_length().saturating_sub(held + 1));
        let limits = self.decoder.limits();
        let outputs = limits.max_outputs.min(limits.max_tokens).saturating_sub(rows);
        let max = max_drafts(rows).min(room).min(outputs);
        let bounds = DraftBounds { rows, max, vocab_size: limits.vocab_size };
        let speculation = self.speculation;
        let mut draft =
            self.with_speculator(|speculator, times, ids| speculator.draft(ids, speculation, bounds, times))?;
        if let Some(draft) = &mut draft {
            text.cut_drafts(&mut draft.tokens)?;
            text.summary.speculation.drafting += began.elapsed();
        }
        Ok(draft.filter(|draft| !draft.tokens.is_empty()))
    }

    /// Runs a step of `rows` rows that appends `tokens`, and measures its time.
    fn step(&mut self, tokens: &[u32], rows: usize, text: &Continuation) -> Result<(Choices, Duration)> {
        let began = Instant::now();
        let choices =
            choice::step(self.decoder, &[DecodingText { continuation: text, sequence: self.sequence, tokens }])?;
        let time = began.elapsed();
        self.decoder.speculator(self.sequence).1.record(rows, time);
        self.accepted_per_step.push(0);
        Ok((choices, time))
    }
}
