//! Keeps the drafters of sequences, and the times of steps, from text to text.

use super::{Decoder, SequenceId};
use crate::{
    Result,
    generate::speculation::{DraftModel, Speculator, StepTimes},
};

impl Decoder {
    /// Sets the model that drafts tokens.
    pub(crate) fn with_draft_model(mut self, model: Self) -> Self {
        self.draft_model = Some(Box::new(DraftModel::new(model)));
        self
    }

    /// Sets whether repetitions in a text are drafted. They are by default.
    pub(crate) fn with_ngrams(mut self, drafts: bool) -> Self {
        self.drafts_ngrams = drafts;
        self
    }

    /// Returns the drafters of a sequence, and the times of steps.
    pub(in crate::generate) fn speculator(&mut self, id: SequenceId) -> (&mut Speculator, &mut StepTimes) {
        let Self { speculators, draft_model, drafts_ngrams, step_times, .. } = self;
        let new = || Speculator::new(*drafts_ngrams, draft_model.as_deref().cloned());
        (speculators.entry(id).or_insert_with(new), step_times)
    }

    /// Returns the drafted tokens at the end of a sequence.
    pub(in crate::generate) fn drafted(&self, id: SequenceId) -> Result<&[u32]> {
        self.held(id).map(|held| held.text_and_drafted().1)
    }

    /// Adds the first drafted tokens of a sequence to its text.
    pub(in crate::generate) fn accept_drafted(&mut self, id: SequenceId, count: usize) {
        if let Some(held) = self.tokens.get_mut(&id) {
            held.drafted = held.drafted.saturating_sub(count);
        }
    }

    /// Removes the drafted tokens at the end of a sequence.
    pub(in crate::generate) fn remove_drafted(&mut self, id: SequenceId) -> Result<()> {
        let held = self.held(id)?;
        if held.drafted == 0 {
            return Ok(());
        }
        self.truncate(id, held.ids.len() - held.drafted)
    }

    /// Returns whether the device is prepared for steps that verify drafts; starts to prepare it if
    /// not.
    pub(in crate::generate) fn is_warm(&self) -> bool {
        self.turns.with_engine(|engine| engine.executable.warm_up())
    }

    /// Returns whether the device has started the next step of a sequence. If so, that step is the
    /// last pipelined one for now.
    pub(in crate::generate) fn ends_pipeline(&mut self, id: SequenceId) -> bool {
        let is_started = self.turns.with_engine(|engine| engine.pipelined.has_started(id));
        if let Some(held) = self.tokens.get_mut(&id) {
            held.ends_pipeline = is_started;
        }
        is_started
    }

    /// Returns whether sequences have recurrent states.
    pub(in crate::generate) fn is_recurrent(&self) -> bool {
        self.turns.with_engine(|engine| engine.cache.is_recurrent())
    }

    /// Returns whether every step computes its sequences from their first token.
    pub(in crate::generate) fn recomputes(&self) -> bool {
        self.recompute
    }

    /// Returns the number of tokens of a sequence that its next step computes again.
    pub(in crate::generate) fn missing(&self, id: SequenceId) -> Result<usize> {
        let held = self.tokens(id)?.len();
        Ok(held.saturating_sub(self.turns.with_engine(|engine| engine.cache.len(id))?))
    }
}
