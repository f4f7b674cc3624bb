//! Keeps the drafters of sequences, and the times of steps, from text to text.

use super::{Decoder, SequenceId, mtp::MtpDrafter};
use crate::{
    Error, Result,
    generate::speculation::{DraftModel, DraftSource, Ngrams, Speculator, StepTimes},
};

impl Decoder {
    /// Sets the model that drafts tokens.
    pub(crate) fn with_draft_model(mut self, model: Self) -> Self {
        self.draft_model = Some(Box::new(DraftModel::new(model)));
        self
    }

    /// Leaves out drafts from repetitions in a text.
    #[doc(hidden)]
    pub fn without_ngrams(mut self) -> Self {
        self.drafts_ngrams = false;
        self
    }

    /// Returns the drafters of a sequence, and the times of steps.
    pub(in crate::generate) fn speculator(&mut self, id: SequenceId) -> (&mut Speculator, &mut StepTimes) {
        let Self { turns, speculators, draft_model, drafts_ngrams, step_times, .. } = self;
        let new = || {
            let ngrams = drafts_ngrams.then(|| DraftSource::new(Ngrams::default()));
            let has_head = turns.with_engine(|engine| engine.head.is_some());
            let head = has_head.then(|| DraftSource::new(MtpDrafter { turns: turns.clone(), sequence: id }));
            let model = draft_model.as_deref().map(|model| DraftSource::new(model.clone()));
            Speculator::new(ngrams.into_iter().chain(head).chain(model).collect())
        };
        (speculators.entry(id).or_insert_with(new), step_times)
    }

    /// Returns the logits of the model's head for multi-token prediction after `token`, which
    /// follows the tokens of a sequence: for the token after it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the model has no head, or if it has no row for the token; errors
    /// of the device.
    #[doc(hidden)]
    pub fn mtp_logits(&mut self, id: SequenceId, token: u32) -> Result<Vec<f32>> {
        let len = self.tokens(id)?.len();
        self.turns.with_engine(|engine| match &mut engine.head {
            Some(head) if head.can_draft(id, len) => head.logits(&engine.cache, id, token),
            _ => Err(Error::Unsupported("the model has no head that predicts further tokens".into())),
        })
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
        self.shorten(id, held.ids.len() - held.drafted)
    }

    /// Returns whether the device is prepared for steps that verify drafts; starts to prepare it if
    /// not.
    pub(in crate::generate) fn is_warm(&self) -> bool {
        self.turns.with_engine(|engine| engine.executable.warm_up())
    }

    /// Returns whether the device has started the next step of a sequence.
    pub(in crate::generate) fn has_started(&self, id: SequenceId) -> bool {
        self.turns.with_engine(|engine| engine.pipelined.has_started(id))
    }

    /// Makes the step of a sequence that the device has started the last pipelined one for now.
    pub(in crate::generate) fn end_pipeline(&mut self, id: SequenceId) {
        self.tokens.entry(id).and_modify(|held| held.ends_pipeline = true);
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
