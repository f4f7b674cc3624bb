//! Generates a text token by token.

use std::{collections::VecDeque, iter::FusedIterator};

use serde::{Deserialize, Serialize};

use super::Generation;
use crate::{Result, sampler::Logprobs};

/// A generated token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GeneratedToken {
    /// The token's id.
    pub id: u32,
    /// The text that became certain with this token. It is empty while a character is incomplete,
    /// or while the text may become a stop string. The texts of all tokens together are the
    /// generated text.
    pub text: String,
    /// The log-probabilities at the token's position, before sampling; `None` unless
    /// [`GenerateOptions::logprobs`](crate::GenerateOptions::logprobs) is set.
    pub logprobs: Option<Logprobs>,
}

/// An iterator over the tokens of a [`Generation`]; created by [`Generation::tokens`].
#[derive(Debug)]
pub struct GeneratedTokens<'r, 'a> {
    generation: &'r mut Generation<'a>,
    /// The last token, to which text that is held back may be added, and an error after it.
    ready: VecDeque<Result<GeneratedToken>>,
}

impl<'r, 'a> GeneratedTokens<'r, 'a> {
    pub(super) fn new(generation: &'r mut Generation<'a>) -> Self {
        Self { generation, ready: VecDeque::new() }
    }

    /// Generates a token if the text has not ended.
    fn advance(&mut self) -> Result<()> {
        self.generation.prefill(|_, _| true)?;
        if self.generation.is_done() {
            return Ok(());
        }
        let index = self.generation.ids().len();
        let piece = self.generation.advance()?;
        let text = self.generation.take_leftover() + &piece;
        if let Some(&id) = self.generation.ids().get(index) {
            let logprobs = self.generation.logprobs().get(index).cloned();
            self.ready.push_back(Ok(GeneratedToken { id, text, logprobs }));
        } else if let Some(Ok(last)) = self.ready.back_mut() {
            last.text += &text;
        } else {
            self.generation.leave(&text);
        }
        Ok(())
    }
}

impl Iterator for GeneratedTokens<'_, '_> {
    type Item = Result<GeneratedToken>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.generation.is_done() && self.ready.len() <= usize::from(self.generation.holds_back_text()) {
            if let Err(error) = self.advance() {
                self.ready.push_back(Err(error));
            }
        }
        self.ready.pop_front()
    }
}

impl FusedIterator for GeneratedTokens<'_, '_> {}

impl Drop for GeneratedTokens<'_, '_> {
    fn drop(&mut self) {
        for token in self.ready.drain(..).flatten() {
            self.generation.leave(&token.text);
        }
    }
}
