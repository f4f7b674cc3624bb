//! What all decoders of a model share: the executable, and the cache of their sequences.

use super::{
    Limits,
    ahead::StepsAhead,
    batch::{Part, Span, take_spans},
};
use crate::{
    Result,
    backend::{Executable, Run, Step, TokenLogit},
    kv_cache::{KvCache, PageId},
};

/// Runs one step at a time, whoever asks.
pub(super) struct Engine {
    pub executable: Box<dyn Executable>,
    pub cache: KvCache,
    /// Page copies that no step has made yet.
    pub(super) copies: Vec<(PageId, PageId)>,
    /// Steps that the device has been given ahead of the calls that ask for them.
    pub(super) ahead: StepsAhead,
}

/// Where the logits go that a step was asked for.
pub(super) struct Results<'a> {
    pub logits: &'a mut Vec<f32>,
    /// The largest of them, where no others were asked for.
    pub best: &'a mut Vec<TokenLogit>,
    /// How many of the largest are enough; `None` where all are wanted.
    pub largest: Option<usize>,
}

impl Engine {
    pub fn new(executable: Box<dyn Executable>, cache: KvCache) -> Self {
        Self { executable, cache, copies: vec![], ahead: StepsAhead::default() }
    }

    /// Computes what is asked of some sequences. On an error they are no longer than they start.
    pub fn compute(&mut self, parts: &[Part], limits: Limits, mut results: Results) -> Result<()> {
        let done = self.try_compute(parts, limits, &mut results);
        if done.is_err() {
            for part in parts {
                self.cache.truncate(part.sequence, part.start)?;
            }
        }
        done
    }

    fn try_compute(&mut self, parts: &[Part], limits: Limits, results: &mut Results) -> Result<()> {
        results.logits.clear();
        results.best.clear();
        for part in parts {
            self.cache.truncate(part.sequence, part.start)?;
        }
        let mut next = (0, 0);
        while next.0 < parts.len() {
            let spans = take_spans(parts, &mut next, limits);
            self.run(parts, &spans, results)?;
        }
        Ok(())
    }

    fn run(&mut self, parts: &[Part], spans: &[Span], results: &mut Results) -> Result<()> {
        let (mut tokens, mut outputs, mut runs) = (vec![], vec![], Vec::with_capacity(spans.len()));
        let advance = |&Span { part, from, len }: &Span| {
            let part = &parts[part];
            self.cache.extend(part.sequence, len)?;
            self.cache.advance(part.sequence, part.start + from + len, part.stage)
        };
        let states = spans.iter().map(advance).collect::<Result<Vec<_>>>()?;
        self.copies.extend(self.cache.take_copies());
        for (&Span { part, from, len }, state) in spans.iter().zip(&states) {
            let part = &parts[part];
            let wanted = part.wanted_from.max(from)..from + len;
            outputs.extend(wanted.map(|index| tokens.len() + index - from));
            tokens.extend_from_slice(&part.tokens[from..from + len]);
            let pages = self.cache.pages(part.sequence)?;
            runs.push(Run { len, start: part.start + from, pages, state: state.as_ref() });
        }
        let step = Step { tokens: &tokens, runs: &runs, outputs: &outputs, copies: &self.copies };
        let found = match results.largest {
            Some(count) => self.executable.best(&step, count)?,
            None => None,
        };
        match found {
            Some(found) => results.best.extend_from_slice(found),
            None => results.logits.extend_from_slice(self.executable.run(&step)?),
        }
        // Kept until a step has made them: were one to fail, the next must.
        self.copies.clear();
        Ok(())
    }
}
