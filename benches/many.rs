//! What it gains to score labels and to go on from documents all at once, instead of one by one.
//!
//! Both ways take turns, so that a slow moment of the machine is everyone's, and each begins with
//! an empty sequence.
//!
//!     cargo bench --bench many -- [--model FILE] [--labels N] [--documents N] [--tokens N]
//! [--threads N] [--reps N]

#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/common/storyteller.rs"]
mod storyteller;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use common::{Args, Failure};
use inkstone::{Device, GenerateOptions, Result, Runner, SamplerOptions};

const USAGE: &str = "
Usage: cargo bench --bench many -- [OPTIONS]

  --model FILE    a GGUF file, or a directory of safetensors; without one, the model that comes with the repository
  --labels N      labels to score after a text; 0 for none (5)
  --documents N   documents to go on from, which have a common beginning; 0 for none (24)
  --tokens N      tokens to generate for each document (40)
  --device NAME   auto, cpu, gpu, or a part of a GPU's name (cpu)
  --threads N     CPU threads (one for each core)
  --reps N        times that each is done, of which the median counts (5)";

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
        // Cargo hands this on to every benchmark.
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
        let [alone, at_once]: [&Way; 2] = [&|r| settings.labels_alone(r), &|r| settings.labels_at_once(r)];
        compare("labels", settings.reps, &mut runner, [alone, at_once])?;
        let [alone, at_once]: [&Way; 2] = [&|r| settings.documents_alone(r), &|r| settings.documents_at_once(r)];
        compare("documents", settings.reps, &mut runner, [alone, at_once])?;
        Ok(())
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

    fn labels_alone(&self, runner: &mut Runner) -> Result<usize> {
        let text = self.text();
        let tokens = self.labels().map(|label| Ok(runner.score(&text, label, 0)?.len()));
        tokens.sum()
    }

    fn labels_at_once(&self, runner: &mut Runner) -> Result<usize> {
        Ok(runner.score_many(self.text(), self.labels(), 0)?.iter().map(Vec::len).sum())
    }

    fn documents_alone(&self, runner: &mut Runner) -> Result<usize> {
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

/// One of the ways to do something, which returns the tokens that it came to.
type Way<'a> = dyn Fn(&mut Runner) -> Result<usize> + 'a;

/// Prints how long each of two ways takes, which come to as many tokens.
fn compare(what: &str, reps: usize, runner: &mut Runner, ways: [&Way; 2]) -> Result<(), Failure> {
    let mut seconds = [vec![], vec![]];
    let mut tokens = [0; 2];
    // The first round makes room and is not counted.
    for rep in 0..=reps {
        for (way, act) in ways.iter().enumerate() {
            runner.reset();
            let started = Instant::now();
            tokens[way] = act(runner)?;
            if rep > 0 {
                seconds[way].push(started.elapsed().as_secs_f64());
            }
        }
    }
    if tokens[0] != tokens[1] {
        return Err(format!("{what}: {} tokens one by one, {} at once", tokens[0], tokens[1]).into());
    }
    if tokens == [0, 0] {
        return Ok(());
    }
    let [alone, at_once] = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    });
    let name = format!("{what}, {} tokens", tokens[0]);
    println!("{name:<32}{:>9.1} ms{:>9.1} ms{:>7.2}x", 1e3 * alone, 1e3 * at_once, alone / at_once);
    Ok(())
}
