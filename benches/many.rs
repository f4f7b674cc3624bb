//! Compares scoring labels and continuing documents in one batch with doing so one by one.
//!
//! Both are measured in turn, so that a slow moment of the machine affects both. Each starts with
//! an empty cache.
//!
//!     cargo bench --bench many -- --help

#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/common/storyteller.rs"]
mod storyteller;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use inkstone::{Device, GenerateOptions, Result, Runner, SamplerOptions};

use common::{Args, Failure};

const USAGE: &str = "
Usage: cargo bench --bench many -- [OPTIONS]

  --model FILE    a GGUF file, or a directory of safetensors (default: the model in this repository)
  --labels N      labels to score after a text; 0 for none (5)
  --documents N   documents with a common prefix to continue; 0 for none (24)
  --tokens N      tokens to generate for each document (40)
  --device NAME   auto, cpu, gpu, or a part of a GPU's name (cpu)
  --threads N     CPU threads (one per core)
  --reps N        rounds, of which the median counts (5)";

const INSTRUCTION: &str = "Below is what a reader wrote to a small library about a book. Read it with care, think of what the \
    reader liked and of what the reader did not like, and then say in a sentence how the reader found the book.\n\n";

const OPINIONS: [&str; 4] = [
    "The story of the fox was warm, and my children asked for it again on each of the next three evenings.",
    "I could not find my way through the second half. Who is the owl, and why does nobody answer her?",
    "It came late, the cover was torn, and a page was missing. What was left of it I read twice.",
    "Good pictures, little text. We had hoped for more about the lantern.",
];

const LABELS: [&str; 8] =
    [" good", " bad", " neither good nor bad", " worth another read", " too long", " too short", " sad", " merry"];

struct Settings {
    labels: usize,
    documents: usize,
    options: GenerateOptions,
    reps: usize,
}

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        // Cargo passes this flag to every benchmark.
        args.flag("--bench");
        let path: PathBuf = args.value("--model")?.unwrap_or_else(storyteller::path);
        let builder = Runner::builder().device(args.value("--device")?.unwrap_or(Device::Cpu));
        let builder = match args.value("--threads")? {
            Some(threads) => builder.threads(threads),
            None => builder,
        };
        let settings = Settings::take(&mut args)?;
        args.finish()?;
        let mut runner = builder.from_path(&path)?;
        println!("{} on {}; medians of {}", path.display(), runner.device().name, settings.reps);
        println!("{:<32}{:>12}{:>12}{:>8}", "", "one by one", "at once", "gain");
        let methods: [&Method; 2] = [&|r| settings.labels_one_by_one(r), &|r| settings.labels_at_once(r)];
        compare("labels", settings.reps, &mut runner, methods)?;
        let methods: [&Method; 2] = [&|r| settings.documents_one_by_one(r), &|r| settings.documents_at_once(r)];
        compare("documents", settings.reps, &mut runner, methods)
    })
}

impl Settings {
    fn take(args: &mut Args) -> Result<Self, Failure> {
        let sampler = SamplerOptions::greedy();
        let max_tokens = Some(args.value("--tokens")?.unwrap_or(40));
        let settings = Self {
            labels: args.value("--labels")?.unwrap_or(5),
            documents: args.value("--documents")?.unwrap_or(24),
            options: GenerateOptions { sampler, max_tokens, ..Default::default() },
            reps: args.value("--reps")?.unwrap_or(5),
        };
        if settings.reps == 0 {
            return Err("--reps must be at least 1".into());
        }
        Ok(settings)
    }

    fn text(&self) -> String {
        format!("{INSTRUCTION}{}\n\nThe reader found it", OPINIONS.join(" "))
    }

    fn labels(&self) -> impl Iterator<Item = &'static str> {
        LABELS.into_iter().cycle().take(self.labels)
    }

    fn documents(&self) -> impl Iterator<Item = String> {
        let opinion = |n: usize| format!("{} {}", OPINIONS[n % 4], OPINIONS[(n / 4 + 1) % 4]);
        (0..self.documents).map(move |n| format!("{INSTRUCTION}{}\n\nThe reader found it", opinion(n)))
    }

    fn labels_one_by_one(&self, runner: &mut Runner) -> Result<usize> {
        let text = self.text();
        let tokens = self.labels().map(|label| Ok(runner.score(&text, label, 0)?.len()));
        tokens.sum()
    }

    fn labels_at_once(&self, runner: &mut Runner) -> Result<usize> {
        Ok(runner.score_many(self.text(), self.labels(), 0)?.iter().map(Vec::len).sum())
    }

    fn documents_one_by_one(&self, runner: &mut Runner) -> Result<usize> {
        let tokens = self.documents().map(|document| {
            let mut generation = runner.generate(document, &self.options)?;
            generation.by_ref().try_for_each(|piece| piece.map(drop))?;
            Ok(generation.ids().len())
        });
        tokens.sum()
    }

    fn documents_at_once(&self, runner: &mut Runner) -> Result<usize> {
        let requests = self.documents().map(|document| (document, &self.options));
        Ok(runner.generate_many(requests, |_, _| true)?.iter().map(|text| text.ids.len()).sum())
    }
}

/// A method to compare. Returns the number of tokens.
type Method<'a> = dyn Fn(&mut Runner) -> Result<usize> + 'a;

/// Prints the times of two methods, one by one and at once, which must return the same number of
/// tokens.
fn compare(name: &str, reps: usize, runner: &mut Runner, methods: [&Method; 2]) -> Result<(), Failure> {
    let mut seconds = [vec![], vec![]];
    let mut tokens = [0; 2];
    // The first round is a warm-up and is not counted.
    for rep in 0..=reps {
        for (index, method) in methods.iter().enumerate() {
            runner.reset();
            runner.clear_cache();
            let started = Instant::now();
            tokens[index] = method(runner)?;
            if rep > 0 {
                seconds[index].push(started.elapsed().as_secs_f64());
            }
        }
    }
    if tokens[0] != tokens[1] {
        return Err(format!("{name}: {} tokens one by one, {} at once", tokens[0], tokens[1]).into());
    }
    if tokens == [0, 0] {
        return Ok(());
    }
    let [one_by_one, at_once] = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    });
    let name = format!("{name}, {} tokens", tokens[0]);
    println!("{name:<32}{:>9.1} ms{:>9.1} ms{:>7.2}x", 1e3 * one_by_one, 1e3 * at_once, one_by_one / at_once);
    Ok(())
}
