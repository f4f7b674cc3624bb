//! Measures which choices make a model fast on this machine, and writes them to a profile beside
//! the model, which inkstone then uses.

mod common;
#[path = "common/workload.rs"]
mod workload;

use std::{
    collections::BTreeSet,
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use common::Failure;
use inkstone::{CacheType, Device, Profile, Runner};
use workload::{Workload, median};

const USAGE: &str = "
Usage: tune --model FILE [OPTIONS]

Measures which choices make a model fast on this machine, and writes them to NAME.inkstone.toml beside the model, where
inkstone finds them. It takes minutes, in which the machine should do nothing else.

  --model FILE    a GGUF file, or a directory of safetensors
  --device NAME   auto, cpu, gpu, or a part of a GPU's name (auto)
  --reps N        times that each choice and its alternative are measured in turn (3)
  --seconds S     least time of a measurement (0.7)
  --cache-types   also tries f32 and q8_0 for cached keys and values, which round differently
  --dry-run       prints the profile, and writes no file
  --help          prints this help";

/// The gain from which on a choice is taken: less is noise.
const LEAST_GAIN: f64 = 1.02;
/// The speed of each workload, relative to the present choice, below which a choice is not taken.
const LARGEST_LOSS: f64 = 0.98;

/// The speed of each workload, relative to the present choice, below which a choice is not measured
/// again.
const CLEAR_LOSS: f64 = 0.93;

/// Passes without which graphs compute more than they must.
const NEEDED_PASSES: [&str; 4] = ["dead_code", "constant_folding", "common_subexpressions", "prune_rows"];

/// The context length of the measurements, if the model was trained for it.
const CONTEXT: usize = 2048;

/// Settings of the measurements.
struct Tuning {
    model: PathBuf,
    device: Device,
    reps: usize,
    /// The least time of a measurement.
    least: Duration,
    cache_types: bool,
}

/// A choice that can be made in several ways, and the workloads whose speed it changes.
struct Choice {
    name: &'static str,
    profiles: Vec<Profile>,
    workloads: &'static [Workload],
}

/// The speeds of workloads relative to others.
struct Gains {
    mean: f64,
    least: f64,
}

impl Gains {
    /// Divides the second speed of each workload by the first.
    fn new(speeds: &[[f64; 2]]) -> Self {
        let gains = || speeds.iter().map(|[before, after]| after / before);
        let mean = gains().product::<f64>().powf(1.0 / speeds.len() as f64);
        Self { mean, least: gains().fold(f64::INFINITY, f64::min) }
    }
}

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        let tuning = Tuning {
            model: args.required("--model")?,
            device: args.value("--device")?.unwrap_or_default(),
            reps: args.value("--reps")?.unwrap_or(3),
            least: Duration::try_from_secs_f64(args.value("--seconds")?.unwrap_or(0.7))
                .map_err(|e| format!("--seconds: {e}"))?,
            cache_types: args.flag("--cache-types"),
        };
        let is_dry = args.flag("--dry-run");
        args.finish()?;
        if tuning.reps == 0 {
            return Err("--reps must be at least 1".into());
        }
        let (before, after) = tuning.tune()?;
        write_profile(&tuning, &before, &after, is_dry)
    })
}

/// Compares the chosen profile with the default one, and writes it if it is faster.
fn write_profile(tuning: &Tuning, before: &Profile, after: &Profile, is_dry: bool) -> Result<(), Failure> {
    let mut out = io::stdout();
    let path = Profile::path_for(&tuning.model);
    let nothing = if path.exists() {
        format!("there is nothing to write, and {} can be deleted", path.display())
    } else {
        "there is nothing to write".into()
    };
    if before == after {
        return Ok(writeln!(out, "The default choices are the fastest: {nothing}.")?);
    }
    let faster = tuning.compare(before, after, Workload::ALL)?;
    for (workload, speeds) in Workload::ALL.iter().zip(&faster) {
        let [before, after] = speeds;
        writeln!(out, "{workload}: {before:.1} -> {after:.1} tokens/s ({:+.1}%)", 100.0 * (after / before - 1.0))?;
    }
    let gains = Gains::new(&faster);
    if gains.mean < LEAST_GAIN || gains.least < LARGEST_LOSS {
        return Ok(writeln!(out, "These choices gain too little over the default ones: {nothing}.")?);
    }
    let mut text = after.to_toml()?;
    text.insert_str(0, "# Written by inkstone's example `tune`. Delete this file for the default choices.\n");
    if is_dry {
        return Ok(write!(out, "\n{text}")?);
    }
    replace(&path, &text)?;
    Ok(writeln!(out, "\n{}:\n{text}", path.display())?)
}

/// Replaces a file at once, so that no program reads a part of it.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let new = path.with_extension("toml.new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(|e| format!("{}: {e}", path.display()).into())
}

impl Tuning {
    /// Returns the default profile, and the profile of the fastest choices.
    fn tune(&self) -> Result<(Profile, Profile), Failure> {
        let runner = self.load(&Profile::default())?;
        let threads = (runner.device().name == "CPU").then_some(runner.device().threads);
        eprintln!("{} ({}), {} threads", runner.device().name, runner.device().details, runner.device().threads);
        let defaults = runner.profile().clone();
        drop(runner);
        let mut best = defaults.clone();
        let count = self.choices(&best, threads).len();
        for number in 0..count {
            // The choices made so far hold for those that follow.
            let Choice { name, profiles, workloads } = self.choices(&best, threads).swap_remove(number);
            for (tried, profile) in profiles.iter().enumerate() {
                progress(name, number as f64 + tried as f64 / profiles.len() as f64, count as f64);
                let gains = Gains::new(&self.compare(&best, profile, workloads)?);
                if gains.mean >= LEAST_GAIN && gains.least >= LARGEST_LOSS {
                    best = profile.clone();
                }
            }
        }
        progress("", 1.0, 1.0);
        Ok((defaults, best))
    }

    fn load(&self, profile: &Profile) -> Result<Runner, Failure> {
        let builder = Runner::builder().device(self.device.clone()).profile(profile.clone()).without_vision();
        match builder.clone().context_length(CONTEXT).from_path(&self.model) {
            // The model was trained for a shorter context.
            Err(inkstone::Error::Argument { .. }) => Ok(builder.from_path(&self.model)?),
            runner => Ok(runner?),
        }
    }

    /// Returns the tokens per second of each workload, with one profile and the other. They are
    /// measured in turn, and the medians count. Stops early if the other one is clearly slower.
    fn compare(&self, one: &Profile, other: &Profile, workloads: &[Workload]) -> Result<Vec<[f64; 2]>, Failure> {
        let (mut speeds, mut medians) = (vec![[vec![], vec![]]; workloads.len()], vec![]);
        for _ in 0..self.reps {
            for (side, profile) in [one, other].into_iter().enumerate() {
                let mut runner = self.load(profile)?;
                for (workload, speeds) in workloads.iter().zip(&mut speeds) {
                    speeds[side].push(workload.measure(&mut runner, self.least)?);
                }
            }
            medians = speeds.iter().map(|sides| sides.each_ref().map(|speeds| median(speeds))).collect();
            if Gains::new(&medians).least < CLEAR_LOSS {
                break;
            }
        }
        Ok(medians)
    }

    /// Returns the choices, each with the ways to make it other than in `now`. A CPU has `threads`
    /// threads by default.
    fn choices(&self, now: &Profile, threads: Option<usize>) -> Vec<Choice> {
        let with = |change: &dyn Fn(&mut Profile)| {
            let mut profile = now.clone();
            change(&mut profile);
            profile
        };
        let mut choices = vec![];
        let mut add = |name, workloads, profiles| choices.push(Choice { name, profiles, workloads });
        if let Some(default) = threads {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            let counts = BTreeSet::from([processors, (3 * processors).div_ceil(4), processors.div_ceil(2)]);
            let others = counts.iter().filter(|count| **count != default);
            let others = others.map(|count| with(&|profile| profile.threads = Some(*count)));
            add("threads", Workload::BASIC, others.collect());
            let fewer = counts.iter().filter(|count| **count < now.threads.unwrap_or(default));
            let fewer = fewer.map(|count| with(&|profile| profile.decode_threads = Some(*count)));
            add("decode_threads", Workload::DECODE, fewer.collect());
        } else {
            let counts = [[1, 16].as_slice(), &[1, 4, 16], &[1, 2, 4, 16], &[1, 2, 3, 4, 16]];
            let rows = counts.map(|counts| with(&|profile| profile.gpu.row_counts = counts.into()));
            add("gpu.row_counts", Workload::FEW_ROWS, rows.into());
            let rows = [[24, 48, 128], [32, 64, 128], [48, 96, 384], [64, 128, 512]];
            let rows = rows.map(|rows| with(&|profile| profile.gpu.tile_rows = rows.into()));
            add("gpu.tile_rows", Workload::MANY_ROWS, rows.into());
            let positions = [256, 512].map(|most| with(&|profile| profile.gpu.unsplit_positions = Some(most)));
            add("gpu.unsplit_positions", Workload::DECODE, positions.into());
        }
        let chunks = [128, 256, 512, 1024, 2048].map(|chunk| with(&|profile| profile.prefill_chunk = Some(chunk)));
        add("prefill_chunk", Workload::PREFILL, chunks.into());
        for pass in Profile::passes().filter(|pass| !NEEDED_PASSES.contains(pass)) {
            add("without_passes", Workload::BASIC, vec![with(&|profile| profile.without_passes.push(pass.into()))]);
        }
        if self.cache_types {
            let types = [CacheType::Q8_0, CacheType::F32].map(|kind| with(&|profile| profile.cache_type = Some(kind)));
            add("cache_type", Workload::BASIC, types.into());
        }
        choices
    }
}

/// Draws a bar for `done` of `all` choices on a terminal.
fn progress(name: &str, done: f64, all: f64) {
    const WIDTH: usize = 30;
    let filled = (done / all * WIDTH as f64) as usize;
    if io::stderr().is_terminal() {
        eprint!("\r[{}{}] {name:<24}", "#".repeat(filled), ".".repeat(WIDTH - filled));
        if done >= all {
            eprintln!();
        }
    }
}
