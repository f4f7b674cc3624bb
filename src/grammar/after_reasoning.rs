//! Applies a grammar to an answer, and leaves the reasoning before it unconstrained.

use std::mem;

use super::Constraint;
use crate::{
    Result,
    chat::AnswerParser,
    sampler::LogitsProcessor,
    tokenizer::{SpecialTokens, Tokenizer},
};

/// A constraint that starts after the reasoning of an answer, or at once if there is none.
pub(crate) struct AfterReasoning {
    constraint: Constraint,
    tokenizer: Tokenizer,
    /// The ids of the mark before reasoning.
    open: Vec<u32>,
    /// The mark after reasoning.
    close: &'static str,
    /// The opening mark of calls, if a call would also end the reasoning.
    forbidden: Option<ForbiddenMark>,
    /// Whether the answer may be empty, so that it may end within its reasoning.
    may_be_empty: bool,
    state: AnswerState,
    /// The id that was allowed in the last step although the grammar forbids it.
    exception: Option<u32>,
    /// Number of ids that were processed.
    seen: Option<usize>,
}

/// The part of the answer that the next token belongs to.
enum AnswerState {
    /// Only white space has been generated; reasoning may begin.
    Start,
    /// The first `matched` ids of the mark before reasoning have been generated. If the grammar
    /// forbids one of them (`forbidden_prefix`), only the rest of the mark may follow.
    Opening {
        matched: usize,
        forbidden_prefix: bool,
    },
    /// Within reasoning, with its last bytes.
    Reasoning(Vec<u8>),
    /// After reasoning and this number of tokens of white space, which models write there.
    Closed(usize),
    Answer,
}

/// The largest number of tokens of white space after reasoning.
const MAX_SPACES: usize = 4;

impl AfterReasoning {
    /// Returns the constraint for the answer to `prompt`, which `parser` is going to split.
    pub fn new(mut constraint: Constraint, parser: &AnswerParser, prompt: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let marks = parser.reasoning_marks();
        let state = match marks {
            Some(_) if parser.is_reasoning() => AnswerState::Reasoning(vec![]),
            Some([_, close]) if !prompt.trim_end().ends_with(close) => AnswerState::Start,
            _ => AnswerState::Answer,
        };
        let [open, close] = marks.unwrap_or_default();
        let open = tokenizer.encode(open, SpecialTokens::Parse)?;
        let forbidden =
            parser.call_mark_within_reasoning().map(|mark| ForbiddenMark::new(mark, tokenizer)).transpose()?;
        let may_be_empty = constraint.is_complete()?;
        let tokenizer = tokenizer.clone();
        Ok(Self { constraint, tokenizer, open, close, forbidden, may_be_empty, state, exception: None, seen: None })
    }

    fn accept(&mut self, id: u32) -> Result<()> {
        let is_exception = self.exception.take() == Some(id);
        self.state = match mem::replace(&mut self.state, AnswerState::Answer) {
            AnswerState::Start if is_exception || self.open.first() == Some(&id) => self.opening(1, is_exception),
            AnswerState::Start if self.is_space(id) => AnswerState::Start,
            AnswerState::Opening { matched, forbidden_prefix } if self.open.get(matched) == Some(&id) => {
                self.opening(matched + 1, forbidden_prefix || is_exception)
            }
            AnswerState::Reasoning(end) => self.reasoning(end, id)?,
            AnswerState::Closed(spaces) if is_exception => AnswerState::Closed(spaces + 1),
            _ => AnswerState::Answer,
        };
        Ok(())
    }

    fn opening(&self, matched: usize, forbidden_prefix: bool) -> AnswerState {
        if matched == self.open.len() {
            AnswerState::Reasoning(vec![])
        } else {
            AnswerState::Opening { matched, forbidden_prefix }
        }
    }

    fn reasoning(&self, mut end: Vec<u8>, id: u32) -> Result<AnswerState> {
        end.extend(self.tokenizer.token_bytes(id)?);
        if end.windows(self.close.len()).any(|window| window == self.close.as_bytes()) {
            return Ok(AnswerState::Closed(0));
        }
        let kept = self.close.len().max(self.forbidden.as_ref().map_or(0, |forbidden| forbidden.mark.len()));
        end.drain(..end.len().saturating_sub(kept));
        Ok(AnswerState::Reasoning(end))
    }

    /// Returns the most probable token if it is white space.
    fn space(&self, logits: &[f32]) -> Option<u32> {
        let (id, _) = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        self.is_space(id as u32).then_some(id as u32)
    }

    fn is_space(&self, id: u32) -> bool {
        let text = self.tokenizer.token_bytes(id).ok().and_then(|bytes| str::from_utf8(bytes).ok());
        text.is_some_and(|text| !text.is_empty() && text.trim().is_empty())
    }

    /// Applies the grammar, but keeps the logit of the id `exception`.
    fn constrain(&mut self, ids: &[u32], logits: &mut [f32], exception: Option<u32>) -> Result<()> {
        let kept = exception.and_then(|id| Some((id, *logits.get(id as usize)?)));
        self.constraint.process(ids, logits)?;
        let forbidden = kept.filter(|(id, _)| logits[*id as usize] == f32::NEG_INFINITY);
        self.exception = forbidden.map(|(id, logit)| {
            logits[id as usize] = logit;
            id
        });
        Ok(())
    }
}

impl LogitsProcessor for AfterReasoning {
    fn process(&mut self, ids: &[u32], logits: &mut [f32]) -> Result<()> {
        let seen = self.seen.replace(ids.len()).unwrap_or(ids.len());
        ids[seen..].iter().try_for_each(|&id| self.accept(id))?;
        match &self.state {
            AnswerState::Reasoning(end) => {
                let ends = self.tokenizer.end_of_generation().iter().filter(|_| !self.may_be_empty);
                ends.for_each(|&id| logits[id as usize] = f32::NEG_INFINITY);
                self.forbidden.iter().try_for_each(|forbidden| forbidden.apply(end, &self.tokenizer, logits))
            }
            AnswerState::Opening { matched, forbidden_prefix: true } => {
                let next = self.open[*matched] as usize;
                logits.iter_mut().enumerate().filter(|(id, _)| *id != next).for_each(|(_, l)| *l = f32::NEG_INFINITY);
                Ok(())
            }
            AnswerState::Opening { matched, forbidden_prefix: false } => {
                self.constrain(ids, logits, self.open.get(*matched).copied())
            }
            AnswerState::Start => self.constrain(ids, logits, self.open.first().copied()),
            AnswerState::Closed(spaces) => {
                let space = self.space(logits).filter(|_| *spaces < MAX_SPACES);
                self.constraint.begin(ids.len())?;
                self.constrain(ids, logits, space)
            }
            AnswerState::Answer => self.constrain(ids, logits, None),
        }
    }

    fn allowed(&mut self, ids: &[u32], next: &[u32]) -> Result<usize> {
        let seen = self.seen.replace(ids.len()).unwrap_or(ids.len());
        ids[seen..].iter().try_for_each(|&id| self.accept(id))?;
        // Elsewhere the constraint begins within the drafts, or an exception applies.
        match self.state {
            AnswerState::Answer => self.constraint.allowed(ids, next),
            _ => Ok(next.len()),
        }
    }
}

/// A mark that must not be generated.
struct ForbiddenMark {
    mark: &'static [u8],
    /// The ids of the tokens that contain the whole mark.
    whole: Vec<u32>,
}

impl ForbiddenMark {
    fn new(mark: &'static str, tokenizer: &Tokenizer) -> Result<Self> {
        let mark = mark.as_bytes();
        let has_mark = |bytes: &[u8]| bytes.windows(mark.len()).any(|window| window == mark);
        let mut whole = vec![];
        for id in 0..tokenizer.vocab_size() as u32 {
            if has_mark(tokenizer.token_bytes(id)?) {
                whole.push(id);
            }
        }
        Ok(Self { mark, whole })
    }

    /// Forbids the tokens that complete the mark after a text with this end.
    fn apply(&self, end: &[u8], tokenizer: &Tokenizer, logits: &mut [f32]) -> Result<()> {
        let mut forbid = |id: u32| logits[id as usize] = f32::NEG_INFINITY;
        self.whole.iter().for_each(|&id| forbid(id));
        let prefixes = (1..self.mark.len()).filter(|&matched| end.ends_with(&self.mark[..matched]));
        for matched in prefixes {
            for id in 0..tokenizer.vocab_size() as u32 {
                if tokenizer.token_bytes(id)?.starts_with(&self.mark[matched..]) {
                    forbid(id);
                }
            }
        }
        Ok(())
    }
}
