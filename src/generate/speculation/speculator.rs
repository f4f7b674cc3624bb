//! Decides how many tokens to draft.
//!
//! A draft of `k` tokens gives `E(k)` tokens on average, by the acceptance so far, and takes the
//! time of a step of `k + 1` rows and of drafting. The number with the most tokens per second is
//! drafted. All of these are estimates, so an account of the time that drafts saved and lost limits
//! the loss: steps without drafts add a little to it, and drafts stop while it is overdrawn.

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

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::HashSet};

    use super::*;

    /// Drafts ones.
    struct Ones;

    impl Drafter for Ones {
        fn draft(&mut self, _: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
            draft.extend(vec![1; max]);
            Ok(())
        }
    }

    /// Returns the speed of a text of `tokens` tokens as a factor of the speed without drafts, and
    /// the average length of the drafts of the second half. A draft's next token is accepted with
    /// the probability `accepted`; `time` is the time of a step with a number of rows.
    fn simulate(tokens: usize, accepted: f64, time: impl Fn(usize) -> f64) -> (f64, f64) {
        simulate_seed(tokens, accepted, 0.0, 1, time)
    }

    /// As [`simulate`], with steps that the system interrupts for 30 times their time with the
    /// probability `interrupted`. The interruptions do not count for the speed.
    fn simulate_interrupted(tokens: usize, accepted: f64, interrupted: f64, time: impl Fn(usize) -> f64) -> (f64, f64) {
        simulate_seed(tokens, accepted, interrupted, 1, time)
    }

    /// As [`simulate_interrupted`], with the random numbers of a seed.
    fn simulate_seed(
        tokens: usize,
        accepted: f64,
        interrupted: f64,
        seed: u32,
        time: impl Fn(usize) -> f64,
    ) -> (f64, f64) {
        simulate_with(Speculation::Auto, false, tokens, [accepted, interrupted], seed, time)
    }

    /// As [`simulate_seed`], with any drafts. `recomputes`: whether the step after a refused token
    /// has the accepted ones again.
    fn simulate_with(
        speculation: Speculation,
        recomputes: bool,
        tokens: usize,
        [accepted, interrupted]: [f64; 2],
        seed: u32,
        time: impl Fn(usize) -> f64,
    ) -> (f64, f64) {
        let mut speculator = Speculator::new(vec![DraftSource::new(Ones)]);
        let mut times = StepTimes::default();
        let mut random = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut happens = |probability: f64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) as f64 / (1u64 << 31) as f64) < probability
        };
        let (mut done, mut spent, mut lens, mut steps, mut again) = (0, 0.0, 0, 0, 0);
        while done < tokens {
            let limits = Limits { vocab_size: 2, max_tokens: 512, max_outputs: 128 };
            let shared = SharedStep { texts: 1, rows: 1 + again };
            let bounds = DraftBounds { recomputes, ..DraftBounds::new(shared, 1000, limits) };
            let draft = speculator.draft(&[], speculation, bounds, &times).unwrap();
            // Its real time would depend on the machine's other work.
            speculator.sources[0].token_time = Some(0.0);
            let len = draft.as_ref().map_or(0, |draft| draft.tokens.len());
            let factor = if interrupted > 0.0 && happens(interrupted) { 30.0 } else { 1.0 };
            let step = Duration::from_secs_f64(factor * time(shared.rows + len));
            let usual = times.record(shared.rows + len, step);
            let right = (0..len).take_while(|_| happens(accepted)).count();
            match draft {
                Some(draft) => speculator.count_draft(draft.source, [len, right], usual, &times, 1),
                None => speculator.count_plain(shared, &times),
            }
            (done, spent) = (done + 1 + right, spent + time(shared.rows + len));
            again = if recomputes && right < len { recomputed(len, right) } else { 0 };
            if done > tokens / 2 {
                (lens, steps) = (lens + len, steps + 1);
            }
        }
        (done as f64 * time(1) / spent, lens as f64 / steps as f64)
    }

    #[test]
    fn useless_drafts_cost_little() {
        // As on two cores, as on a GPU, and a step whose time is proportional to its rows.
        let times: [fn(usize) -> f64; 3] = [
            |rows| 0.010 * (1.0 + 0.2 * rows.saturating_sub(3) as f64),
            |rows| 0.002 * (1.0 + 0.15 * (rows - 1) as f64),
            |rows| 0.010 * rows as f64,
        ];
        for (number, time) in times.into_iter().enumerate() {
            for accepted in [0.0, 0.1, 0.3] {
                let (speed, _) = simulate(1000, accepted, time);
                assert!(speed >= 0.97, "{number}, {accepted}: {speed}");
            }
        }
    }

    /// As of a hybrid model of 27 billion parameters on a GPU, whose steps after a refused token
    /// have more rows.
    #[test]
    fn tokens_that_are_computed_again_are_counted() {
        let steps = [1.0, 1.44, 1.83, 1.86, 2.4, 3.0, 3.4, 3.76];
        let time = |rows: usize| 0.0028 * f64::max(steps[rows.min(8) - 1], 0.47 * rows as f64);
        let average = |speculation: Speculation, tokens: usize, accepted: f64| {
            let slowness =
                (0..50).map(|seed| 1.0 / simulate_with(speculation, true, tokens, [accepted, 0.0], seed, time).0);
            50.0 / slowness.sum::<f64>()
        };
        for accepted in [0.0, 0.2, 0.4] {
            let speed = average(Speculation::Auto, 1000, accepted);
            assert!(speed >= 0.97, "{accepted}: {speed}");
        }
        for accepted in [0.8, 0.9] {
            let best = (1..8).map(|len| average(Speculation::Exactly(len), 1000, accepted)).fold(1.0, f64::max);
            let speed = average(Speculation::Auto, 1000, accepted);
            assert!(speed > 0.9 * best, "{accepted}: {speed} of {best}");
        }
    }

    /// Interruptions lengthen steps with drafts and without alike, so they are no reason not to
    /// draft.
    #[test]
    fn interruptions_do_not_stop_useful_drafts() {
        let time = |rows: usize| 0.010 * (1.0 + 0.4 * (rows - 1) as f64);
        let best = simulate(4000, 0.95, time).0;
        let (speed, len) = simulate_interrupted(4000, 0.95, 0.01, time);
        assert!(speed > 0.8 * best && best > 1.5, "{speed} of {best} with drafts of {len}");
        for interrupted in [0.01, 0.03, 0.1] {
            let (speed, _) = simulate_interrupted(4000, 0.1, interrupted, time);
            assert!(speed >= 0.97, "{interrupted}: {speed} with useless drafts");
        }
    }

    /// Waits before it drafts.
    struct Waiting(Duration);

    impl Drafter for Waiting {
        fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
            std::thread::sleep(self.0 * ids.len() as u32);
            draft.extend(vec![1; max]);
            Ok(())
        }
    }

    /// The time of a draft's token does not include that for tokens of the steps without drafts.
    #[test]
    fn catching_up_does_not_count_for_the_time_of_drafts() {
        let mut source = DraftSource::new(Waiting(Duration::from_millis(1)));
        let mut token_time = |ids: usize, catches_up| {
            source.draft(&vec![0; ids], 1, 2, catches_up).unwrap();
            source.token_time.unwrap()
        };
        assert!(token_time(40, true) >= 0.040);
        let short = token_time(1, true);
        assert!((0.001..0.020).contains(&short), "{short}");
        assert_eq!(token_time(40, true), short);
        assert!(token_time(40, false) <= 1.1 * short + 1e-9);
    }

    #[test]
    fn useful_drafts_have_about_the_best_length() {
        let time = |rows: usize| 0.010 * (1.0 + 0.2 * rows.saturating_sub(3) as f64);
        for accepted in [0.6, 0.8, 0.9] {
            let best = (0..MAX_ROWS).map(|len| {
                let tokens: f64 = (0..=len).map(|position| f64::powi(accepted, position as i32)).sum();
                tokens * time(1) / time(1 + len)
            });
            let best = best.fold(0.0, f64::max);
            let (speed, len) = simulate(4000, accepted, time);
            assert!(speed > 0.93 * best, "{accepted}: {speed} of {best} with drafts of {len}");
        }
    }

    #[test]
    fn lengths_between_the_tried_ones_are_found() {
        // A GPU's steps of 3 and 4 rows take about the same time, and of 5 to 8.
        let rows = [1.0, 1.28, 1.78, 1.84, 2.63, 2.69, 2.79, 2.84, 3.38, 3.44, 3.5, 3.6, 4.1, 4.2, 4.3, 4.4];
        let time = |count: usize| 0.010 * rows[count - 1];
        let texts = 100;
        for (accepted, best) in [(0.6, 1.25), (0.8, 1.60), (0.9, 2.0)] {
            let slowness = |seed| 1.0 / simulate_with(Speculation::Auto, true, 256, [accepted, 0.0], seed, time).0;
            let speed = f64::from(texts) / (0..texts).map(slowness).sum::<f64>();
            assert!(speed > 0.91 * best, "{accepted}: {speed} of {best}");
        }
    }

    #[test]
    fn slow_first_steps_do_not_decide() {
        let rows = [1.0, 1.26, 1.52, 1.56, 2.4, 2.45, 2.5, 2.52, 3.0, 3.1, 3.2, 3.3, 3.6, 3.7, 3.8, 3.9];
        for (accepted, best) in [(0.8, 1.89), (0.9, 2.26)] {
            let texts = 100;
            let slowness = |seed| {
                // The first step of a number of rows prepares the device.
                let seen = RefCell::new(HashSet::new());
                let time = |count: usize| {
                    let first = count > 1 && seen.borrow_mut().insert(count);
                    0.010 * rows[count - 1] * if first { 3.0 } else { 1.0 }
                };
                1.0 / simulate_with(Speculation::Auto, true, 256, [accepted, 0.0], seed, time).0
            };
            let speed = f64::from(texts) / (0..texts).map(slowness).sum::<f64>();
            assert!(speed > 0.82 * best, "{accepted}: {speed} of {best}");
        }
    }

    #[test]
    fn useful_drafts_pay_in_short_texts() {
        // As on a GPU, whose steps of few rows cost more from row to row.
        let time = |rows: usize| 0.002 * (1.0 + 0.4 * (rows - 1) as f64);
        let texts = 100;
        let slowness = (0..texts).map(|seed| 1.0 / simulate_seed(256, 0.9, 0.0, seed, time).0);
        let speed = f64::from(texts) / slowness.sum::<f64>();
        // Drafts of four tokens are the best, and 1.57 times as fast.
        assert!(speed > 1.45, "{speed}");
    }
}
