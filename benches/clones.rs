//! Compares clones of a runner that generate at the same time with the same texts generated one by
//! one.
//!
//! Each round measures a single text, a text of each clone in turn, the same texts at the same time
//! on a thread each, and a single text again. A slow moment of the machine therefore affects all
//! four. Clones at the same time share their steps, so they are faster than in turn; a last ratio
//! of 1.00 means that a single text is as fast afterwards as before.
//!
//!     cargo bench --bench clones -- --help

#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/common/model.rs"]
mod model;
#[path = "../examples/common/storyteller.rs"]
mod storyteller;

use std::{path::PathBuf, process::ExitCode, thread, time::Instant};

use inkstone::{GenerateOptions, Result, Runner, SamplerOptions, Speculation};

use common::Failure;

const USAGE: &str = "
Usage: cargo bench --bench clones -- [OPTIONS]

  --model FILE       a GGUF file (default: the model in this repository)
  --tokens N         tokens of each text (60)
  --rounds N         rounds, of which the median counts (5)
  --sample           samples with the default options instead of taking the most probable token";

/// Numbers of clones.
const CLONES: [usize; 3] = [2, 4, 8];

/// The times of one round, in seconds per token.
struct Round {
    before: f64,
    in_turn: f64,
    at_once: f64,
    after: f64,
    /// Tokens of a step while the clones generate at the same time.
    rows: f64,
}

fn main() -> ExitCode {
    common::run(&format!("{USAGE}\n{}", model::MODEL_OPTIONS), |mut args| {
        // Cargo passes this flag to every benchmark.
        args.flag("--bench");
        let path = args.value::<PathBuf>("--model")?.unwrap_or_else(storyteller::path);
        let tokens = args.value("--tokens")?.unwrap_or(60);
        let rounds = args.value("--rounds")?.unwrap_or(5);
        let sampler = if args.flag("--sample") {
            SamplerOptions { seed: Some(1), ..Default::default() }
        } else {
            SamplerOptions::greedy()
        };
        let builder = model::builder(&mut args)?;
        args.finish()?;
        let speculation = Speculation::Off;
        let options = GenerateOptions { sampler, max_tokens: Some(tokens), speculation, ..Default::default() };
        measure(builder.from_path(path)?, &options, rounds)
    })
}

fn measure(runner: Runner, options: &GenerateOptions, rounds: usize) -> Result<(), Failure> {
    let mut runners: Vec<_> = (0..CLONES[CLONES.len() - 1]).map(|_| runner.clone()).collect();
    println!("{}, {}", runner.device().name, runner.device().details);
    println!("clones   alone, tokens/s   in turn   at once   at once/in turn   alone after/before   tokens a step");
    for clones in CLONES {
        let runners = &mut runners[..clones];
        // The first round is a warm-up and is not counted.
        let rounds: Vec<_> = (0..=rounds).map(|_| round(runners, options)).collect::<Result<_>>()?;
        let rounds = &rounds[1..];
        println!(
            "{clones:6}{:18.1}{:10.1}{:10.1}{:18.3}{:21.3}{:16.2}",
            1.0 / median(rounds, |round| round.before),
            1.0 / median(rounds, |round| round.in_turn),
            1.0 / median(rounds, |round| round.at_once),
            median(rounds, |round| round.in_turn / round.at_once),
            median(rounds, |round| round.before / round.after),
            median(rounds, |round| round.rows),
        );
    }
    Ok(())
}

fn round(runners: &mut [Runner], options: &GenerateOptions) -> Result<Round> {
    let before = single_text(&mut runners[0], options)?;
    let in_turn = seconds_per_token(|| {
        let texts = runners.iter_mut().enumerate().map(|(index, runner)| generate(runner, options, index));
        texts.sum()
    })?;
    let earlier = runners[0].statistics();
    let at_once = seconds_per_token(|| {
        thread::scope(|scope| {
            let texts = runners.iter_mut().enumerate();
            let threads: Vec<_> =
                texts.map(|(index, runner)| scope.spawn(move || generate(runner, options, index))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread of the bench panicked")).sum()
        })
    })?;
    let later = runners[0].statistics();
    let rows = (later.tokens - earlier.tokens) as f64 / (later.steps - earlier.steps) as f64;
    let after = single_text(&mut runners[0], options)?;
    Ok(Round { before, in_turn, at_once, after, rows })
}

fn single_text(runner: &mut Runner, options: &GenerateOptions) -> Result<f64> {
    seconds_per_token(|| generate(runner, options, 0))
}

fn seconds_per_token(generate: impl FnOnce() -> Result<usize>) -> Result<f64> {
    let started = Instant::now();
    let tokens = generate()?;
    Ok(started.elapsed().as_secs_f64() / tokens as f64)
}

/// Generates a text from prompt `index` and returns its number of tokens.
fn generate(runner: &mut Runner, options: &GenerateOptions, index: usize) -> Result<usize> {
    const PROMPTS: [&str; 4] = ["Once upon a time", "There was once", "A long time ago", "In a far land"];
    let mut generation = runner.generate(PROMPTS[index % PROMPTS.len()], options)?;
    generation.by_ref().try_for_each(|piece| piece.map(drop))?;
    Ok(generation.summary().generated_tokens)
}

fn median(rounds: &[Round], value: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<_> = rounds.iter().map(value).collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
