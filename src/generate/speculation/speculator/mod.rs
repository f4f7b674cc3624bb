//! Decides how many tokens to draft.
//!
//! A draft of `k` tokens gives `E(k)` tokens on average, by the acceptance so far, and takes the
//! time of a step of `k + 1` rows and of drafting. The number with the most tokens per second is
//! drafted. All of these are estimates, so an account of the time that drafts saved and lost limits
//! the loss: steps without drafts add a little to it, and drafts stop while it is overdrawn.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::{
    Drafter, MAX_ROWS, SharedStep, Speculation, StepTimes,
    acceptance::{Acceptance, probability_of},
    step_times::MAX_RATIO,
};
use crate::{Result, generate::Limits, kv_cache::tentative_offsets};

/// The time that drafts may lose, as a share of the time without drafts.
const ALLOWANCE: f64 = 0.01;
/// The balance of the account at first, and its maximum, in steps without drafts.
const FIRST_BALANCE: f64 = 1.5;
const MAX_BALANCE: f64 = 32.0;
/// The least gain, as a factor, for which tokens are drafted.
const LEAST_GAIN: f64 = 1.03;
/// The largest ratio of the time of a draft to the usual time, if steps without drafts precede it:
/// more is an interruption by the system.
const MAX_FIRST_RATIO: f64 = 4.0;
/// Number of steps without drafts before the first one, to measure their time.
const FIRST_STEPS: usize = 3;
/// Number of steps with drafts after which the time of a step without is measured again.
const REMEASURE_AFTER: usize = 64;
/// Number of steps without drafts after which drafts are tried again although they did not pay.
const RETRY_AFTER: usize = 16;
/// The time for drafting a token, as a share of a step without drafts, above which nothing is
/// drafted in vain.
const COSTLY: f64 = 0.01;
/// Number of tokens of a draft that is tried first, or again.
const FIRST_TOKENS: usize = 2;

/// Drafters of a text, with their records.
#[derive(Debug)]
pub(in crate::generate) struct Speculator {
    sources: Vec<DraftSource>,
    /// The time that drafts may still lose, in steps without drafts.
    balance: f64,
    /// Numbers of steps without drafts: all, and those since the last draft.
    plain_steps: usize,
    plain_since_draft: usize,
    /// Number of steps with drafts since the last one without.
    drafts_since_plain: usize,
}

/// A drafter and the record of its drafts.
pub(in crate::generate) struct DraftSource {
    drafter: Box<dyn Drafter>,
    acceptance: Acceptance,
    /// The average time for drafting a token, in seconds.
    token_time: Option<f64>,
}

/// The bounds of a draft.
#[derive(Clone, Copy)]
pub(super) struct DraftBounds {
    /// The step that verifies the draft.
    pub step: SharedStep,
    /// The largest number of tokens to draft.
    pub max: usize,
    /// The number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// Whether the device has started a step without drafts, for which the draft has to wait.
    pub waits: bool,
    /// Whether sequences have recurrent states, so that the step after a refused token may compute
    /// accepted tokens again.
    pub recomputes: bool,
}

/// A draft and the time that it took.
#[derive(Debug)]
pub(in crate::generate) struct Draft {
    /// The tokens; none if drafting takes long and has to wait.
    pub tokens: Vec<u32>,
    /// Index of the source.
    pub source: usize,
    pub time: Duration,
}

impl DraftSource {
    pub fn new(drafter: impl Drafter + 'static) -> Self {
        Self { drafter: Box::new(drafter), acceptance: Acceptance::default(), token_time: None }
    }

    /// Returns the best number of tokens to draft, and its gain over a step without drafts as a
    /// factor.
    fn best_len(&self, times: &StepTimes, bounds: DraftBounds) -> (usize, f64) {
        let expected = self.acceptance.expected_tokens();
        let token_time = self.token_time.unwrap_or(0.0);
        let SharedStep { texts, rows } = bounds.step;
        let rate = |len: usize| {
            let drafts = texts * len;
            let time = times.of(rows + drafts)? + drafts as f64 * token_time;
            let again = if bounds.recomputes { expected_again(&expected, len, texts, times)? } else { 0.0 };
            Some(expected[len] / (time + again))
        };
        let Some(plain) = rate(0) else { return (0, 1.0) };
        let rates = (1..=bounds.max).filter_map(|len| Some((len, rate(len)? / plain)));
        rates.max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap_or((0, 1.0))
    }

    /// Drafts tokens, and returns them with the time that this took. `catches_up`: whether there
    /// were steps without drafts, whose tokens the drafter may compute first.
    fn draft(&mut self, ids: &[u32], len: usize, vocab_size: usize, catches_up: bool) -> Result<(Vec<u32>, Duration)> {
        let (mut tokens, began) = (vec![], Instant::now());
        self.drafter.draft(ids, len, &mut tokens)?;
        let time = began.elapsed();
        tokens.truncate(len);
        let valid = tokens.iter().take_while(|id| (**id as usize) < vocab_size).count();
        tokens.truncate(valid);
        if !tokens.is_empty() {
            let new = time.as_secs_f64() / tokens.len() as f64;
            let old = self.token_time.unwrap_or(new);
            self.token_time = Some(match catches_up {
                // Further drafts in a row do not catch up, so their tokens take at most this time.
                true => new.min(old),
                false => old + 0.2 * (new.min(MAX_RATIO * old) - old),
            });
        }
        Ok((tokens, time))
    }
}

/// Returns the expected time, in the step after a draft of `len` tokens, for computing tokens
/// again.
fn expected_again(expected: &[f64; MAX_ROWS], len: usize, texts: usize, times: &StepTimes) -> Option<f64> {
    let plain = times.of(texts)?;
    let again = |accepted: usize| {
        let longer = times.of((texts + recomputed(len, accepted)).min(MAX_ROWS))? - plain;
        Some(texts as f64 * probability_of(expected, accepted) * longer)
    };
    (0..len).map(again).sum()
}

/// Returns the number of accepted tokens, of a draft of `len`, after the last stored state.
fn recomputed(len: usize, accepted: usize) -> usize {
    tentative_offsets(len).take_while(|stored| *stored <= accepted).last().map_or(0, |stored| accepted - stored)
}

impl std::fmt::Debug for DraftSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DraftSource").field("token_time", &self.token_time).finish_non_exhaustive()
    }
}

impl Speculator {
    pub fn new(sources: Vec<DraftSource>) -> Self {
        Self { sources, balance: FIRST_BALANCE, plain_steps: 0, plain_since_draft: 0, drafts_since_plain: 0 }
    }

    /// Adds sources before the others.
    pub fn add_first(&mut self, sources: &mut Vec<DraftSource>) {
        self.sources.splice(..0, sources.drain(..));
    }

    /// Removes and returns the first `count` sources.
    pub fn take_first(&mut self, count: usize) -> impl Iterator<Item = DraftSource> {
        self.sources.drain(..count)
    }

    /// Prepares the drafters for a text.
    pub fn start(&mut self, prompt: &[u32], goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.sources.iter_mut().try_for_each(|source| source.drafter.start(prompt, goes_on))
    }

    /// Drafts tokens that may follow `ids`, if they probably save time.
    pub(super) fn draft(
        &mut self,
        ids: &[u32],
        speculation: Speculation,
        bounds: DraftBounds,
        times: &StepTimes,
    ) -> Result<Option<Draft>> {
        for (source, len) in self.lengths(speculation, bounds, times) {
            let costs = self.sources[source].token_time.zip(times.of(bounds.step.rows));
            if bounds.waits && costs.is_some_and(|(token, plain)| token > COSTLY * plain) {
                return Ok(Some(Draft { tokens: vec![], source, time: Duration::ZERO }));
            }
            let catches_up = self.plain_since_draft > 0;
            let (tokens, time) = self.sources[source].draft(ids, len, bounds.vocab_size, catches_up)?;
            if !tokens.is_empty() {
                return Ok(Some(Draft { tokens, source, time }));
            }
            if let Some(plain) = times.of(bounds.step.rows) {
                self.balance -= time.as_secs_f64() / plain;
            }
        }
        Ok(None)
    }

    /// Returns the sources to try, the best first, and the number of tokens for each to draft.
    fn lengths(&self, speculation: Speculation, bounds: DraftBounds, times: &StepTimes) -> Vec<(usize, usize)> {
        let max = match speculation {
            Speculation::Exactly(len) => {
                return (0..self.sources.len())
                    .map(|source| (source, len.min(bounds.max)))
                    .filter(|s| s.1 > 0)
                    .collect();
            }
            Speculation::Off => 0,
            Speculation::AtMost(len) => len.min(bounds.max),
            Speculation::Auto => bounds.max,
        };
        let measures = self.plain_steps < FIRST_STEPS || self.drafts_since_plain >= REMEASURE_AFTER;
        if max == 0 || measures || self.balance < 0.0 {
            return vec![];
        }
        // Steps of many rows may take several times as long as short ones, so lengths are tried
        // step by step.
        let SharedStep { texts, rows } = bounds.step;
        let tried = (2 * times.most_rows()).saturating_sub(rows) / texts;
        let bounds = DraftBounds { max: max.min(tried.max(FIRST_TOKENS)), ..bounds };
        let best = |(source, record): (usize, &DraftSource)| (source, record.best_len(times, bounds));
        let mut best: Vec<_> = self.sources.iter().enumerate().map(best).collect();
        best.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
        let retries = self.balance >= 1.0 && self.plain_since_draft >= RETRY_AFTER;
        let len = |(source, (len, gain))| match (gain >= LEAST_GAIN, retries) {
            (true, _) => Some((source, len)),
            (false, true) => Some((source, FIRST_TOKENS.min(max))),
            (false, false) => None,
        };
        best.into_iter().filter_map(len).collect()
    }

    /// Counts a step without drafts.
    pub(super) fn count_plain(&mut self, step: SharedStep, times: &StepTimes) {
        self.plain_steps += 1;
        self.plain_since_draft += 1;
        self.drafts_since_plain = 0;
        // Tokens are computed again because of the drafts before.
        let again = match times.of(step.rows).zip(times.of(step.texts)) {
            Some((time, plain)) if step.rows > step.texts => time / plain - 1.0,
            _ => 0.0,
        };
        self.balance = (self.balance + ALLOWANCE - again).min(MAX_BALANCE);
    }

    /// Counts a step that verified a draft of `source` with `drafted` tokens, of which the first
    /// `accepted` were accepted. `time` is the time of drafting and of the step, which would have
    /// had `plain_rows` rows without drafts.
    pub(super) fn count_draft(
        &mut self,
        source: usize,
        [drafted, accepted]: [usize; 2],
        time: Duration,
        times: &StepTimes,
        plain_rows: usize,
    ) {
        self.sources[source].acceptance.record(accepted, accepted < drafted);
        // The first draft after steps without may have computed these steps' tokens, too.
        let max_ratio = if self.plain_since_draft > 0 { MAX_FIRST_RATIO } else { MAX_RATIO };
        self.plain_since_draft = 0;
        self.drafts_since_plain += 1;
        if let Some(plain) = times.of(plain_rows) {
            let DraftSource { token_time, .. } = self.sources[source];
            let usual =
                times.measured(plain_rows + drafted).zip(token_time).map(|(step, token)| step + drafted as f64 * token);
            let time = time.as_secs_f64().min(usual.map_or(f64::MAX, |usual| max_ratio * usual));
            let saved = (accepted + 1) as f64 - time / plain;
            self.balance = (self.balance + saved).min(MAX_BALANCE);
        }
    }
}

impl DraftBounds {
    /// Returns the bounds of a draft for a text that has room for `room` tokens of it.
    pub fn new(step: SharedStep, room: usize, limits: Limits) -> Self {
        let rows = MAX_ROWS.min(limits.max_outputs).min(limits.max_tokens);
        let max = rows.saturating_sub(step.rows) / step.texts;
        Self { step, max: max.min(room), vocab_size: limits.vocab_size, waits: false, recomputes: false }
    }
}
