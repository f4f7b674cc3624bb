//! Measures clones of a runner that generate at the same time, beside the same texts one after another.
//!
//! Each round times a text alone, a text of each clone in turn, the same texts at once on a thread each, and a text alone
//! again, so that a slow moment of the machine falls on all four. A ratio of 1.00 means that clones lose nothing by
//! running at once, and that the runner is as fast afterwards as it was before.
//!
//!     cargo bench --bench clones -- [--model FILE] [--device NAME] [--threads N] [--tokens N] [--rounds N] [--sample]

#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/common/model.rs"]
mod model;
#[path = "../examples/common/storyteller.rs"]
mod storyteller;

use std::{path::PathBuf, process::ExitCode, thread, time::Instant};

use common::Failure;
use inkstone::{GenerateOptions, Result, Runner, SamplerOptions};

const USAGE: &str = "
Usage: cargo bench --bench clones -- [OPTIONS]

  --model FILE       a GGUF file; without one, the model that comes with the repository
  --tokens N         tokens of each text (60)
  --rounds N         rounds, of which the median counts (5)
  --sample           samples with the default options instead of taking the most probable token";

/// Clones that run at once.
const CLONES: [usize; 2] = [2, 4];

/// Times of one round, in seconds a token.
struct Round {
    before: f64,
    in_turn: f64,
    at_once: f64,
    after: f64,
}

fn main() -> ExitCode {
    common::run(&format!("{USAGE}\n{}", model::MODEL_OPTIONS), |mut args| {
        // Given by `cargo bench`.
        args.flag("--bench");
        let path = args.value::<PathBuf>("--model")?.unwrap_or_else(storyteller::path);
        let tokens = args.value("--tokens")?.unwrap_or(60);
        let rounds = args.value("--rounds")?.unwrap_or(5);
        let sampler = match args.flag("--sample") {
            true => SamplerOptions { seed: Some(1), ..Default::default() },
            false => SamplerOptions::greedy(),
        };
        let builder = model::builder(&mut args)?;
        args.finish()?;
        let options = GenerateOptions { sampler, max_tokens: Some(tokens), ..Default::default() };
        measure(builder.from_path(path)?, &options, rounds)
    })
}

fn measure(runner: Runner, options: &GenerateOptions, rounds: usize) -> Result<(), Failure> {
    let mut runners: Vec<_> = (0..CLONES[CLONES.len() - 1]).map(|_| runner.clone()).collect();
    println!("{}, {}", runner.device().name, runner.device().details);
    println!("clones   alone, tokens/s   in turn   at once   at once/in turn   alone after/before");
    for clones in CLONES {
        let runners = &mut runners[..clones];
        // The first round makes room in memory and is not counted.
        let rounds: Vec<_> = (0..=rounds).map(|_| round(runners, options)).collect::<Result<_>>()?;
        let rounds = &rounds[1..];
        println!(
            "{clones:6}{:18.1}{:10.1}{:10.1}{:18.3}{:21.3}",
            1.0 / median(rounds, |round| round.before),
            1.0 / median(rounds, |round| round.in_turn),
            1.0 / median(rounds, |round| round.at_once),
            median(rounds, |round| round.in_turn / round.at_once),
            median(rounds, |round| round.before / round.after),
        );
    }
    Ok(())
}

fn round(runners: &mut [Runner], options: &GenerateOptions) -> Result<Round> {
    let before = text(&mut runners[0], options, 0)?;
    let in_turn = seconds_a_token(|| {
        let texts = runners.iter_mut().enumerate().map(|(index, runner)| generate(runner, options, index));
        texts.sum()
    })?;
    let at_once = seconds_a_token(|| {
        thread::scope(|scope| {
            let texts = runners.iter_mut().enumerate();
            let threads: Vec<_> =
                texts.map(|(index, runner)| scope.spawn(move || generate(runner, options, index))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread of the bench panicked")).sum()
        })
    })?;
    let after = text(&mut runners[0], options, 0)?;
    Ok(Round { before, in_turn, at_once, after })
}

fn text(runner: &mut Runner, options: &GenerateOptions, index: usize) -> Result<f64> {
    seconds_a_token(|| generate(runner, options, index))
}

fn seconds_a_token(generate: impl FnOnce() -> Result<usize>) -> Result<f64> {
    let started = Instant::now();
    let tokens = generate()?;
    Ok(started.elapsed().as_secs_f64() / tokens as f64)
}

/// Generates a text and returns the number of its tokens.
fn generate(runner: &mut Runner, options: &GenerateOptions, index: usize) -> Result<usize> {
    const PROMPTS: [&str; 4] = ["Once upon a time", "There was once", "A long time ago", "In a far land"];
    let mut generation = runner.generate(PROMPTS[index], options)?;
    generation.by_ref().try_for_each(|piece| piece.map(drop))?;
    Ok(generation.summary().generated_tokens)
}

fn median(rounds: &[Round], value: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<_> = rounds.iter().map(value).collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
