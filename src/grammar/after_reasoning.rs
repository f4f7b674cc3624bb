//! Keeps an answer to a form, and leaves what the model thinks before it free.

use std::mem;

use super::Constraint;
use crate::{
    Result,
    chat::AnswerParser,
    sampler::LogitsProcessor,
    tokenizer::{SpecialTokens, Tokenizer},
};

/// A constraint of what follows a thought, if there is one.
pub(crate) struct AfterThought {
    constraint: Constraint,
    tokenizer: Tokenizer,
    /// The ids that begin a thought.
    open: Vec<u32>,
    close: &'static str,
    /// The mark that begins a call, where calls would also end a thought.
    forbidden: Option<Forbidden>,
    /// Whether an answer of this form may end within its thought, as it may be empty.
    may_be_empty: bool,
    state: State,
    /// The id that may come although the form forbids it.
    exception: Option<u32>,
    /// How many of the ids it knows.
    seen: Option<usize>,
}

enum State {
    /// Nothing but white space is there yet; a thought may begin.
    Start,
    /// The first `there` ids of the mark that opens a thought were generated. `against_form`: the
    /// form forbade one of them, so that only the rest of the mark may follow.
    Opening {
        there: usize,
        against_form: bool,
    },
    /// Within the thought, whose last bytes these are.
    Thought(Vec<u8>),
    /// Just after it, or after so many tokens of the white space that models go on with.
    Closed(usize),
    Answer,
}

/// The most tokens of white space after a thought.
const MAX_SPACES: usize = 4;

impl AfterThought {
    /// For the answer to this prompt, which `parser` takes apart.
    pub fn new(mut constraint: Constraint, parser: &AnswerParser, prompt: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let marks = parser.reasoning_marks();
        let state = match marks {
            Some(_) if parser.is_reasoning() => State::Thought(vec![]),
            Some([_, close]) if !prompt.trim_end().ends_with(close) => State::Start,
            _ => State::Answer,
        };
        let [open, close] = marks.unwrap_or_default();
        let open = tokenizer.encode(open, SpecialTokens::Parse)?;
        let forbidden = parser.call_mark_within_reasoning().map(|mark| Forbidden::new(mark, tokenizer)).transpose()?;
        let may_be_empty = constraint.is_complete()?;
        let tokenizer = tokenizer.clone();
        Ok(Self { constraint, tokenizer, open, close, forbidden, may_be_empty, state, exception: None, seen: None })
    }

    fn accept(&mut self, id: u32) -> Result<()> {
        let excepted = self.exception.take() == Some(id);
        self.state = match mem::replace(&mut self.state, State::Answer) {
            State::Start if excepted || self.open.first() == Some(&id) => self.opening(1, excepted),
            State::Start if self.is_space(id) => State::Start,
            State::Opening { there, against_form } if self.open.get(there) == Some(&id) => {
                self.opening(there + 1, against_form || excepted)
            }
            State::Thought(end) => self.thinking(end, id)?,
            State::Closed(spaces) if excepted => State::Closed(spaces + 1),
            _ => State::Answer,
        };
        Ok(())
    }

    fn opening(&self, there: usize, against_form: bool) -> State {
        if there == self.open.len() { State::Thought(vec![]) } else { State::Opening { there, against_form } }
    }

    fn thinking(&self, mut end: Vec<u8>, id: u32) -> Result<State> {
        end.extend(self.tokenizer.token_bytes(id)?);
        if end.windows(self.close.len()).any(|window| window == self.close.as_bytes()) {
            return Ok(State::Closed(0));
        }
        let kept = self.close.len().max(self.forbidden.as_ref().map_or(0, |forbidden| forbidden.mark.len()));
        end.drain(..end.len().saturating_sub(kept));
        Ok(State::Thought(end))
    }

    /// The most probable token, if it is white space.
    fn space(&self, logits: &[f32]) -> Option<u32> {
        let (id, _) = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        self.is_space(id as u32).then_some(id as u32)
    }

    fn is_space(&self, id: u32) -> bool {
        let text = self.tokenizer.token_bytes(id).ok().and_then(|bytes| str::from_utf8(bytes).ok());
        text.is_some_and(|text| !text.is_empty() && text.trim().is_empty())
    }

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

impl LogitsProcessor for AfterThought {
    fn process(&mut self, ids: &[u32], logits: &mut [f32]) -> Result<()> {
        let seen = self.seen.replace(ids.len()).unwrap_or(ids.len());
        ids[seen..].iter().try_for_each(|&id| self.accept(id))?;
        match &self.state {
            State::Thought(end) => {
                let ends = self.tokenizer.end_of_generation().iter().filter(|_| !self.may_be_empty);
                ends.for_each(|&id| logits[id as usize] = f32::NEG_INFINITY);
                self.forbidden.iter().try_for_each(|forbidden| forbidden.apply(end, &self.tokenizer, logits))
            }
            State::Opening { there, against_form: true } => {
                let next = self.open[*there] as usize;
                logits.iter_mut().enumerate().filter(|(id, _)| *id != next).for_each(|(_, l)| *l = f32::NEG_INFINITY);
                Ok(())
            }
            State::Opening { there, against_form: false } => {
                self.constrain(ids, logits, self.open.get(*there).copied())
            }
            State::Start => self.constrain(ids, logits, self.open.first().copied()),
            State::Closed(spaces) => {
                let space = self.space(logits).filter(|_| *spaces < MAX_SPACES);
                self.constraint.begin(ids.len())?;
                self.constrain(ids, logits, space)
            }
            State::Answer => self.constrain(ids, logits, None),
        }
    }
}

/// A mark that may not come.
struct Forbidden {
    mark: &'static [u8],
    /// The ids of the tokens with the whole mark in them.
    whole: Vec<u32>,
}

impl Forbidden {
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

    /// Forbids the tokens that would bring the mark about after a text with this end.
    fn apply(&self, end: &[u8], tokenizer: &Tokenizer, logits: &mut [f32]) -> Result<()> {
        let mut forbid = |id: u32| logits[id as usize] = f32::NEG_INFINITY;
        self.whole.iter().for_each(|&id| forbid(id));
        let begun = (1..self.mark.len()).filter(|&there| end.ends_with(&self.mark[..there]));
        for there in begun {
            for id in 0..tokenizer.vocab_size() as u32 {
                if tokenizer.token_bytes(id)?.starts_with(&self.mark[there..]) {
                    forbid(id);
                }
            }
        }
        Ok(())
    }
}
