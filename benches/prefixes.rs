//! Measures what texts cost that begin like earlier ones of other clones: labels that are scored
//! after one text, and a second conversation with the same system prompt.
//!
//!     cargo bench --bench prefixes -- --help

#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/common/storyteller.rs"]
mod storyteller;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use inkstone::{Device, GenerateOptions, Result, Runner};

use common::Failure;

const USAGE: &str = "
Usage: cargo bench --bench prefixes -- [OPTIONS]

  --model FILE    a GGUF file, or a directory of safetensors (default: the model in this repository)
  --text N        tokens of the text before the labels (500)
  --labels N      labels (100)
  --system N      tokens of the system prompt (2000)
  --threads N     CPU threads (one per core)
  --reps N        rounds, of which the median counts (5)";

/// Number of tokens of a label, and of a user's message.
const LABEL: usize = 3;
const MESSAGE: usize = 20;

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        // Cargo passes this flag to every benchmark.
        args.flag("--bench");
        let path: PathBuf = args.value("--model")?.unwrap_or_else(storyteller::path);
        let (text, labels) = (args.value("--text")?.unwrap_or(500usize), args.value("--labels")?.unwrap_or(100usize));
        let (system, reps) = (args.value("--system")?.unwrap_or(2000usize), args.value("--reps")?.unwrap_or(5usize));
        let threads = args.value("--threads")?;
        args.finish()?;
        let builder = Runner::builder().device(Device::Cpu).without_vision();
        let builder = threads.into_iter().fold(builder, |builder, threads| builder.threads(threads));
        let runner = builder.from_path(path)?;
        let context = runner.context_length();
        score_labels(&runner, text.min(context - MESSAGE), labels, reps)?;
        answer(&runner, system.min(context - MESSAGE - 16), reps)
    })
}

/// Returns ids that depend on a seed.
fn ids(runner: &Runner, seed: usize, len: usize) -> Vec<u32> {
    let vocab_size = runner.config().vocab_size;
    (0..len).map(|index| ((index + 7) * (seed + 1) * 7919 % vocab_size) as u32).collect()
}

/// Returns the median time of a method. Each round begins with an empty cache, in which `prepare`
/// leaves what it computes.
fn median(
    runner: &Runner,
    reps: usize,
    prepare: impl Fn(&mut Runner) -> Result<()>,
    method: impl Fn(&mut Runner) -> Result<()>,
) -> Result<Duration> {
    let mut times = vec![];
    for _ in 0..=reps {
        let mut handle = runner.clone();
        handle.clear_cache();
        prepare(&mut handle.clone())?;
        let started = Instant::now();
        method(&mut handle)?;
        times.push(started.elapsed());
    }
    // The first round is a warm-up.
    times.remove(0);
    times.sort_unstable();
    Ok(times[reps / 2])
}

fn score_labels(runner: &Runner, text: usize, labels: usize, reps: usize) -> Result<(), Failure> {
    let prefix = ids(runner, 0, text);
    let labels: Vec<_> = (1..=labels).map(|seed| ids(runner, seed, LABEL)).collect();
    let nothing = |_: &mut Runner| Ok(());
    let prompt = |runner: &mut Runner| runner.generate_ids(&prefix, 1, |_| true).map(drop);
    let at_once = |runner: &mut Runner| runner.score_many(&prefix, &labels, 0).map(drop);
    let apart =
        |runner: &mut Runner| labels.iter().try_for_each(|label| runner.clone().score(&prefix, label, 0).map(drop));
    let [one, own, own_apart] = [
        median(runner, reps, nothing, prompt)?,
        median(runner, reps, prompt, at_once)?,
        median(runner, reps, prompt, apart)?,
    ];
    let [all, all_apart] = [median(runner, reps, nothing, at_once)?, median(runner, reps, nothing, apart)?];
    println!("{} labels after {text} tokens: a prompt takes {one:.1?}", labels.len());
    for (name, own, all) in [("score_many", own, all), ("clones, score", own_apart, all_apart)] {
        let ratio = all.as_secs_f64() / (one + own).as_secs_f64();
        println!("  {name:14} labels {own:.1?}, with the prompt {all:.1?}: {ratio:.2} of the sum");
    }
    Ok(())
}

fn answer(runner: &Runner, system: usize, reps: usize) -> Result<(), Failure> {
    let options = GenerateOptions { max_tokens: Some(1), ..Default::default() };
    let prompt = |seed: usize| [ids(runner, 0, system), ids(runner, seed, MESSAGE)].concat();
    let first_token = |runner: &mut Runner, seed: usize| -> Result<(u64, usize)> {
        let before = runner.statistics().steps;
        let mut generation = runner.generate(prompt(seed), &options)?;
        generation.by_ref().try_for_each(|piece| piece.map(drop))?;
        let cached = generation.summary().cached_tokens;
        Ok((runner.statistics().steps - before, cached))
    };
    println!("conversations with a system prompt of {system} tokens:");
    for earlier in 0..3 {
        let prepare = |runner: &mut Runner| {
            (0..earlier).try_for_each(|seed| first_token(&mut runner.clone(), seed + 1).map(drop))
        };
        let time = median(runner, reps, prepare, |runner| first_token(runner, 9).map(drop))?;
        let mut handle = runner.clone();
        handle.clear_cache();
        prepare(&mut handle)?;
        let (steps, cached) = first_token(&mut handle, 9)?;
        println!("  {earlier} before: first token after {time:.1?}, {steps} steps, {cached} tokens from the cache");
    }
    Ok(())
}
