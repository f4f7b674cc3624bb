//! Measures steps that append a token to each of several sequences.

use std::{
    io::{self, Write},
    str::FromStr,
    time::Instant,
};

use inkstone::{Runner, SequenceId};

use crate::{Measured, common::Failure, median, profile::Profile, spread};

/// Numbers of sequences, as in `1,2,4`.
#[derive(Clone)]
pub struct BatchSizes(pub Vec<usize>);

impl FromStr for BatchSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes = text.split(',').map(|size| size.parse().ok().filter(|size| *size > 0));
        let sizes: Option<Vec<_>> = sizes.collect();
        sizes.map(Self).ok_or_else(|| format!("must be numbers from 1 on, such as 1,2,4, and not {text}"))
    }
}

/// The settings of a measurement.
pub struct Batches {
    pub sizes: BatchSizes,
    /// Tokens in the cache of each sequence before the first step.
    pub depth: usize,
    /// Steps of a round.
    pub steps: usize,
    pub reps: usize,
    pub profile: bool,
    pub json: bool,
}

impl Batches {
    /// Returns the tokens that a sequence needs room for.
    pub fn context_length(&self) -> usize {
        (self.depth + (self.reps + 1) * self.steps + 2).next_multiple_of(64)
    }

    /// Measures greedy steps of each size, and prints a line for each.
    pub fn measure(&self, runner: &mut Runner) -> Result<(), Failure> {
        let mut out = io::stdout();
        let mut first = None;
        // Clocks rise during the first steps.
        self.step(runner, self.sizes.0[0])?;
        for &size in &self.sizes.0 {
            let (step, profile) = self.step(runner, size)?;
            let rate = size as f64 / step;
            let ms = 1e3 * step;
            if self.json {
                writeln!(out, "{{\"batch\":{size},\"tok_s\":{rate:.2},\"step_ms\":{ms:.4}}}")?;
                continue;
            }
            let one = *first.get_or_insert(step);
            if self.sizes.0[0] == size {
                writeln!(out, "sequences  tokens/s  ms a step  of the first step ({} tokens before)", self.depth)?;
            }
            writeln!(out, "{size:>9}  {rate:>8.1}  {ms:>9.3}  {:>17.2}", step / one)?;
            if self.profile {
                writeln!(out, "\n{profile}")?;
            }
        }
        Ok(())
    }

    /// Returns the median time of a step in seconds.
    fn step(&self, runner: &mut Runner, size: usize) -> Result<(f64, Profile), Failure> {
        let vocab_size = runner.config().vocab_size;
        let decoder = runner.decoder_mut();
        // One sequence is computed. The others share its pages, except for their last tokens.
        let common: Vec<u32> = (0..self.depth.max(2) - 1).map(|index| spread(index, vocab_size)).collect();
        let mut sequences: Vec<SequenceId> = vec![decoder.open()];
        decoder.prefill(sequences[0], &common, |_, _| true)?;
        for _ in 1..size {
            sequences.push(decoder.fork(sequences[0])?);
        }
        let mut tokens: Vec<_> =
            sequences.iter().enumerate().map(|(index, id)| (*id, spread(3 * index + 1, vocab_size))).collect();
        decoder.set_profiling(self.profile)?;
        let (mut times, mut profile) = (vec![], Profile::default());
        for rep in 0..=self.reps {
            decoder.take_profile();
            let start = Instant::now();
            for _ in 0..self.steps {
                let next = decoder.greedy_many(&tokens)?;
                tokens.iter_mut().zip(next).for_each(|((_, token), next)| *token = next);
            }
            let measured = Measured { wall: start.elapsed(), ops: decoder.take_profile() };
            if rep > 0 {
                times.push(measured.wall.as_secs_f64() / self.steps as f64);
                profile.add(self.steps, measured.wall, measured.ops);
            }
        }
        sequences.into_iter().try_for_each(|id| decoder.close(id))?;
        Ok((median(&times), profile))
    }
}
