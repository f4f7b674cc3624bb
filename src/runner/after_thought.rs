//! Keeps an answer to a form, and leaves what the model thinks before it free.

use std::mem;

use crate::{
    Result,
    chat::AnswerParser,
    grammar::Constraint,
    sampler::LogitsProcessor,
    tokenizer::{SpecialTokens, Tokenizer},
};

/// A constraint of what follows a thought, if there is one.
pub(super) struct AfterThought {
    constraint: Constraint,
    tokenizer: Tokenizer,
    /// The ids that begin a thought.
    open: Vec<u32>,
    close: &'static str,
    state: State,
    /// The id that may come although the form forbids it.
    exception: Option<u32>,
    /// How many of the ids it knows.
    seen: Option<usize>,
}

enum State {
    /// Nothing is there yet; a thought may begin.
    Start,
    /// So many of the ids that begin one are there.
    Opening(usize),
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
    pub fn new(constraint: Constraint, parser: &AnswerParser, prompt: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let marks = parser.thought_marks();
        let state = match marks {
            Some(_) if parser.is_thinking() => State::Thought(vec![]),
            Some([_, close]) if !prompt.trim_end().ends_with(close) => State::Start,
            _ => State::Answer,
        };
        let [open, close] = marks.unwrap_or_default();
        let open = tokenizer.encode(open, SpecialTokens::Parse)?;
        Ok(Self { constraint, tokenizer: tokenizer.clone(), open, close, state, exception: None, seen: None })
    }

    fn accept(&mut self, id: u32) -> Result<()> {
        let excepted = self.exception.take() == Some(id);
        self.state = match mem::replace(&mut self.state, State::Answer) {
            State::Start if excepted => self.opening(1),
            State::Opening(there) => self.opening(there + 1),
            State::Thought(end) => self.thinking(end, id)?,
            State::Closed(spaces) if excepted => State::Closed(spaces + 1),
            _ => State::Answer,
        };
        Ok(())
    }

    fn opening(&self, there: usize) -> State {
        if there == self.open.len() { State::Thought(vec![]) } else { State::Opening(there) }
    }

    fn thinking(&self, mut end: Vec<u8>, id: u32) -> Result<State> {
        end.extend(self.tokenizer.token_bytes(id)?);
        if end.windows(self.close.len()).any(|window| window == self.close.as_bytes()) {
            return Ok(State::Closed(0));
        }
        end.drain(..end.len().saturating_sub(self.close.len()));
        Ok(State::Thought(end))
    }

    /// The most probable token, if it is white space.
    fn space(&self, logits: &[f32]) -> Option<u32> {
        let (id, _) = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        let text = str::from_utf8(self.tokenizer.token_bytes(id as u32).ok()?).ok()?;
        (!text.is_empty() && text.trim().is_empty()).then_some(id as u32)
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
        match self.state {
            State::Thought(_) => Ok(()),
            State::Opening(there) => {
                let next = self.open[there] as usize;
                logits.iter_mut().enumerate().filter(|(id, _)| *id != next).for_each(|(_, l)| *l = f32::NEG_INFINITY);
                Ok(())
            }
            State::Start => self.constrain(ids, logits, self.open.first().copied()),
            State::Closed(spaces) => {
                self.constraint.begin(ids.len());
                let space = self.space(logits).filter(|_| spaces < MAX_SPACES);
                self.constrain(ids, logits, space)
            }
            State::Answer => self.constrain(ids, logits, None),
        }
    }
}
