//! Simulates texts with drafts.

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
fn simulate_seed(tokens: usize, accepted: f64, interrupted: f64, seed: u32, time: impl Fn(usize) -> f64) -> (f64, f64) {
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
