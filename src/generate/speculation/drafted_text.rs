//! Keeps the drafts of one text, from step to step.

use std::time::{Duration, Instant};

use super::{
    DraftSource, Drafter, MAX_ROWS, Speculation, Speculator, StepTimes,
    speculator::{Draft, DraftBounds},
};
use crate::{
    Result,
    generate::{Decoder, continuation::Continuation},
    kv_cache::SequenceId,
};

/// The shortest text, in tokens, for which drafters are prepared.
const LEAST_TOKENS: usize = 4;

/// The drafters of a text, and the draft of its last step.
#[derive(Debug)]
pub(in crate::generate) struct DraftedText {
    speculation: Speculation,
    /// The text's own drafters, before those of the decoder.
    drafters: Vec<DraftSource>,
    draft: Option<VerifiedDraft>,
    /// Number of accepted drafts of each step.
    accepted_per_step: Vec<usize>,
}

/// A draft that the last step has computed.
#[derive(Debug)]
struct VerifiedDraft {
    len: usize,
    source: usize,
    /// Time for drafting and for the step.
    time: Duration,
    /// Number of rows of the same step if nothing had ever been drafted.
    plain_rows: usize,
}

/// A step that several texts may share.
#[derive(Clone, Copy)]
pub(in crate::generate) struct SharedStep {
    /// Number of texts that draft.
    pub texts: usize,
    /// Number of rows without drafts, of all texts. It exceeds the number of texts if tokens are
    /// computed again, since the drafts after them were refused.
    pub rows: usize,
}

/// A step and its time.
#[derive(Clone, Copy)]
pub(in crate::generate) struct TimedStep {
    pub step: SharedStep,
    pub time: Duration,
    /// The time that later such steps are going to take.
    pub usual: Duration,
}

impl SharedStep {
    /// Returns whether a step may have drafts of all texts.
    pub fn has_room(self) -> bool {
        self.rows + self.texts <= MAX_ROWS
    }
}

impl DraftedText {
    pub fn new(speculation: Speculation, drafters: Vec<DraftSource>) -> Self {
        Self { speculation, drafters, draft: None, accepted_per_step: vec![] }
    }

    /// Adds a drafter before the model's.
    pub fn add_drafter(&mut self, drafter: impl Drafter + 'static) {
        self.drafters.push(DraftSource::new(drafter));
    }

    /// Returns the number of accepted drafts of each step so far.
    pub fn accepted_per_step(&self) -> &[usize] {
        &self.accepted_per_step
    }

    /// Prepares the drafters for a text that follows `prompt` in `sequence`.
    pub fn start(
        &mut self,
        decoder: &mut Decoder,
        sequence: SequenceId,
        prompt: &[u32],
        text: &mut Continuation,
    ) -> Result<()> {
        let off = if decoder.recomputes() {
            "every step computes all tokens again"
        } else if self.speculation == Speculation::Off {
            "the options switch drafts off"
        } else if text.room() < LEAST_TOKENS {
            "the text has too few tokens"
        } else {
            let goes_on = || !text.is_stopped();
            self.with_speculator(decoder, sequence, |speculator, _| speculator.start(prompt, &goes_on))?;
            "no draft was found that would probably save time"
        };
        text.summary.speculation.off = Some(off.into());
        Ok(())
    }

    /// Drafts tokens that may follow `ids`, the prompt and the text, if they probably save time.
    pub fn draft(
        &mut self,
        decoder: &mut Decoder,
        sequence: SequenceId,
        ids: &[u32],
        step: SharedStep,
        text: &mut Continuation,
    ) -> Result<Option<Draft>> {
        if self.speculation == Speculation::Off || decoder.recomputes() {
            return Ok(None);
        }
        let began = Instant::now();
        let held = decoder.tokens(sequence)?.len();
        // The last drafted token and the one that is chosen after it have room, too.
        let room = text.room().saturating_sub(1).min(decoder.context_length().saturating_sub(held + 1));
        let speculation = self.speculation;
        let is_forced = matches!(speculation, Speculation::Exactly(_));
        let is_started = !is_forced && decoder.has_started(sequence);
        let bounds = DraftBounds {
            waits: is_started,
            recomputes: decoder.is_recurrent(),
            ..DraftBounds::new(step, room, decoder.limits())
        };
        let draft = self
            .with_speculator(decoder, sequence, |speculator, times| speculator.draft(ids, speculation, bounds, times));
        let Some(mut draft) = draft? else { return Ok(None) };
        let is_postponed = draft.tokens.is_empty();
        text.cut_drafts(&mut draft.tokens)?;
        text.summary.speculation.drafting += began.elapsed();
        let is_cut = draft.tokens.is_empty() && !is_postponed;
        if is_cut || !(is_forced || decoder.is_warm()) {
            return Ok(None);
        }
        if is_started {
            // That step is not discarded, but the last of its kind.
            decoder.end_pipeline(sequence);
            return Ok(None);
        }
        Ok(Some(draft))
    }

    /// Counts a step that computed the text's last token, and a draft if there is one.
    pub fn count_step(
        &mut self,
        decoder: &mut Decoder,
        sequence: SequenceId,
        draft: Option<Draft>,
        timed: TimedStep,
        text: &mut Continuation,
    ) {
        self.accepted_per_step.push(0);
        let Some(Draft { tokens, source, time: drafting }) = draft else {
            let count = |speculator: &mut Speculator, times: &StepTimes| speculator.count_plain(timed.step, times);
            return self.with_speculator(decoder, sequence, count);
        };
        text.summary.speculation.count_draft(tokens.len(), timed.time);
        let (len, time) = (tokens.len(), timed.usual + drafting);
        self.draft = Some(VerifiedDraft { len, source, time, plain_rows: timed.step.texts });
    }

    /// Returns the number of accepted drafts of the last step, and so the number of its row after
    /// which the next token is chosen.
    pub fn accepted(&self) -> usize {
        self.accepted_per_step.last().copied().unwrap_or(0)
    }

    /// Returns whether `token`, the last one of the text, is the next drafted one, and counts it
    /// then.
    pub fn accept(
        &mut self,
        decoder: &mut Decoder,
        sequence: SequenceId,
        token: u32,
        text: &mut Continuation,
    ) -> Result<bool> {
        if decoder.drafted(sequence)?.first() != Some(&token) {
            return Ok(false);
        }
        decoder.accept_drafted(sequence, 1);
        text.summary.speculation.count_accepted(self.accepted());
        self.accepted_per_step.last_mut().into_iter().for_each(|accepted| *accepted += 1);
        Ok(true)
    }

    /// Removes the drafted tokens that were not accepted, and counts the draft.
    pub fn settle(&mut self, decoder: &mut Decoder, sequence: SequenceId) -> Result<()> {
        let accepted = self.accepted();
        if let Some(VerifiedDraft { len, source, time, plain_rows }) = self.draft.take() {
            self.with_speculator(decoder, sequence, |speculator, times| {
                speculator.count_draft(source, [len, accepted], time, times, plain_rows);
            });
        }
        decoder.remove_drafted(sequence)
    }

    /// Calls `act` with the drafters of the text and of the decoder, and the times of steps.
    fn with_speculator<T>(
        &mut self,
        decoder: &mut Decoder,
        sequence: SequenceId,
        act: impl FnOnce(&mut Speculator, &StepTimes) -> T,
    ) -> T {
        let (speculator, times) = decoder.speculator(sequence);
        let own = self.drafters.len();
        speculator.add_first(&mut self.drafters);
        let result = act(speculator, times);
        self.drafters.extend(speculator.take_first(own));
        result
    }
}
