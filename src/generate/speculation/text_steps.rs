//! Runs the steps of one text, with drafts where they pay.

use std::time::Instant;

use super::{DraftedText, Drafter, SharedStep, Speculation, TimedStep};
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

/// The decoder and the sequence of a text.
#[derive(Debug)]
pub(in crate::generate) struct TextSteps<'a> {
    pub decoder: &'a mut Decoder,
    pub sequence: SequenceId,
    drafted: DraftedText,
    /// The prompt and the text, once a token has followed the prompt.
    ids: Vec<u32>,
    /// The choices of the last step.
    choices: Choices,
}

impl<'a> TextSteps<'a> {
    pub fn new(decoder: &'a mut Decoder, sequence: SequenceId, speculation: Speculation) -> Self {
        let drafted = DraftedText::new(speculation, vec![]);
        Self { decoder, sequence, drafted, ids: vec![], choices: Choices::default() }
    }

    /// Adds a drafter before the model's.
    pub fn add_drafter(&mut self, drafter: impl Drafter + 'static) {
        self.drafted.add_drafter(drafter);
    }

    /// Returns the number of accepted drafts of each step so far.
    pub fn accepted_per_step(&self) -> &[usize] {
        self.drafted.accepted_per_step()
    }

    /// Prepares the drafters for a text that follows `prompt`.
    pub fn start(&mut self, prompt: &[u32], text: &mut Continuation) -> Result<()> {
        self.drafted.start(self.decoder, self.sequence, prompt, text)
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
        if !self.drafted.accept(self.decoder, self.sequence, token, text)? {
            self.drafted.settle(self.decoder, self.sequence)?;
            self.choices = self.run(token, text)?;
        }
        let at = ChoiceAt { sequence: self.sequence, len: self.ids.len(), output: self.drafted.accepted() };
        choice::choose(self.decoder, &self.choices, at, text)
    }

    /// Runs a step that appends `token`, and a draft if it probably saves time.
    fn run(&mut self, token: u32, text: &mut Continuation) -> Result<Choices> {
        let step = SharedStep { texts: 1, rows: 1 + self.decoder.missing(self.sequence)? };
        let mut draft = self.drafted.draft(self.decoder, self.sequence, &self.ids, step, text)?;
        let (choices, timed) = loop {
            let drafted = draft.as_ref().map_or(&[][..], |draft| &draft.tokens);
            let tokens = [&[token], drafted].concat();
            let rows = step.rows + drafted.len();
            let began = Instant::now();
            let texts = [DecodingText { continuation: text, sequence: self.sequence, tokens: &tokens }];
            match choice::step(self.decoder, &texts) {
                // There may be memory for a step without drafts.
                Err(error) if error.is_out_of_memory() && draft.is_some() => draft = None,
                choices => {
                    let time = began.elapsed();
                    let usual = self.decoder.speculator(self.sequence).1.record(rows, time);
                    break (choices?, TimedStep { step, time, usual });
                }
            }
        };
        self.drafted.count_step(self.decoder, self.sequence, draft, timed, text);
        Ok(choices)
    }
}
