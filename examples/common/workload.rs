//! Measures the speed of typical steps.

use std::{
    fmt,
    time::{Duration, Instant},
};

use inkstone::{Runner, SequenceId};

use crate::common::Failure;

/// Steps that are measured.
#[derive(Clone, Copy)]
pub enum Workload {
    /// A prompt of this many tokens.
    Prefill(usize),
    /// Single tokens after this many.
    Decode(usize),
    /// Single tokens of this many sequences in each step.
    Batch(usize),
}

impl Workload {
    /// A prompt and an answer.
    pub const BASIC: &'static [Self] = &[Self::Prefill(256), Self::Decode(128)];
    /// Short and long prompts.
    pub const PREFILL: &'static [Self] = &[Self::Prefill(200), Self::Prefill(1100)];
    /// Answers after short and long prompts.
    pub const DECODE: &'static [Self] = &[Self::Decode(128), Self::Decode(900)];
    /// Up to 16 rows in a step.
    pub const FEW_ROWS: &'static [Self] = &[Self::Decode(128), Self::Batch(2), Self::Batch(4), Self::Batch(8)];
    /// More rows in a step.
    pub const MANY_ROWS: &'static [Self] =
        &[Self::Prefill(24), Self::Prefill(48), Self::Prefill(120), Self::Prefill(400)];
    /// Prompts, answers, and answers to several prompts at once.
    pub const ALL: &'static [Self] =
        &[Self::Prefill(200), Self::Prefill(1100), Self::Decode(128), Self::Decode(900), Self::Batch(4)];

    /// Returns the tokens per second, measured for `least` or longer.
    pub fn measure(self, runner: &mut Runner, least: Duration) -> Result<f64, Failure> {
        let prompt = |tokens: usize, room: usize| -> Vec<u32> {
            let tokens = tokens.min(runner.context_length().saturating_sub(room)).max(1);
            (0..tokens).map(|index| (index * 37 % 300) as u32).collect()
        };
        match self {
            Self::Prefill(tokens) => {
                let prompt = prompt(tokens, 1);
                let seconds = median_of_rounds(least, || {
                    runner.reset();
                    runner.prefill(&prompt).map(drop)?;
                    Ok(())
                })?;
                Ok(prompt.len() as f64 / seconds)
            }
            Self::Decode(tokens) => Self::steps(runner, &prompt(tokens, ROOM), 1, least),
            Self::Batch(sequences) => Self::steps(runner, &prompt(128, ROOM), sequences, least),
        }
    }

    /// Measures steps that append a token to each of several sequences after a prompt.
    fn steps(runner: &mut Runner, prompt: &[u32], count: usize, least: Duration) -> Result<f64, Failure> {
        let decoder = runner.decoder_mut();
        let mut sequences: Vec<SequenceId> = vec![decoder.open()];
        decoder.prefill(sequences[0], prompt, |_, _| true)?;
        for _ in 1..count {
            sequences.push(decoder.fork(sequences[0])?);
        }
        let mut tokens: Vec<_> = sequences.iter().zip(3..).map(|(id, token)| (*id, token)).collect();
        let seconds = median_of_rounds(least, || {
            sequences.iter().try_for_each(|id| decoder.truncate(*id, prompt.len()))?;
            for _ in 0..STEPS {
                let next = decoder.greedy_many(&tokens)?;
                tokens.iter_mut().zip(next).for_each(|((_, token), next)| *token = next);
            }
            Ok(())
        })?;
        sequences.into_iter().try_for_each(|id| decoder.close(id))?;
        Ok((STEPS * count) as f64 / seconds)
    }
}

/// Steps of a round.
const STEPS: usize = 16;
/// Tokens that the context has room for after a prompt.
const ROOM: usize = STEPS + 2;

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefill(tokens) => write!(f, "prompts of {tokens} tokens"),
            Self::Decode(tokens) => write!(f, "answers after {tokens} tokens"),
            Self::Batch(sequences) => write!(f, "answers to {sequences} prompts at once"),
        }
    }
}

/// Returns the median time of a round in seconds, without the first one, during which clocks rise.
fn median_of_rounds(least: Duration, mut round: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut times = vec![];
    let started = Instant::now();
    while times.len() < 2 || started.elapsed() < least && times.len() < 40 {
        let start = Instant::now();
        round()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(&times[1..]))
}

/// Returns the middle one of some numbers in order.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
