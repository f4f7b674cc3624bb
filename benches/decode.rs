//! Measures prompts, single tokens, and steps of several tokens of one or several sequences.
//!
//! Each step reads all weights, so its rate is also reported in GB/s of weights and cache, as a
//! share of the machine's fastest read in the same run, and by the time of each kind of op. Steps
//! of all kinds are measured in turn, so that a slow moment of the machine affects all of them.
//!
//!     cargo bench --bench decode -- --help

#[path = "../examples/common/mod.rs"]
mod common;
mod machine;
#[path = "../examples/common/profile.rs"]
mod profile;
mod qwen3;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use inkstone::{
    DType, Decoder, LogitsFor, Result, Runner, SequenceId,
    internals::backend::{Backend, cpu::Cpu},
};

use common::{Args, Failure};
use machine::Machine;
use profile::Profile;

const USAGE: &str = "
Usage: cargo bench --bench decode -- [OPTIONS]

  --model FILE    a GGUF file (default: random weights with the sizes of Qwen3-0.6B)
  --format NAME   format of the random weights (Q4_K)
  --threads N     CPU threads (one per core)
  --depth N       cached tokens of each sequence before a step (256)
  --prefill N     tokens of the prompt (256)
  --reps N        steps of each kind, of which the median counts (15)";

/// Numbers of tokens in a step, in addition to 1.
const BATCHES: [usize; 4] = [2, 4, 8, 16];

struct Settings {
    model: Option<PathBuf>,
    format: DType,
    threads: usize,
    depth: usize,
    prefill: usize,
    reps: usize,
}

/// The measurements of one kind of step.
struct Case {
    name: String,
    sequences: usize,
    /// Tokens per sequence.
    tokens: usize,
    logits_for: LogitsFor,
    seconds: Vec<f64>,
    profile: Profile,
}

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        let settings = Settings::take(&mut args)?;
        args.finish()?;
        let context = settings.depth.saturating_add(settings.prefill.max(BATCHES[3]));
        let mut machine = Machine::new(settings.threads)?;
        let cases = match &settings.model {
            Some(path) => {
                let builder = Runner::builder().threads(settings.threads).context_length(context);
                measure(builder.from_gguf(path)?.decoder_mut(), &settings, &mut machine)?
            }
            None => {
                let cpu = Cpu::new(Some(settings.threads))?;
                measure(&mut qwen3::decoder(&cpu, settings.format, context)?, &settings, &mut machine)?
            }
        };
        Ok(report(&settings, &machine, &cases)?)
    })
}

impl Settings {
    fn take(args: &mut Args) -> Result<Self, Failure> {
        // Cargo passes this flag to every benchmark.
        args.flag("--bench");
        let model = args.value("--model")?;
        let name: Option<String> = args.value("--format")?;
        if model.is_some() && name.is_some() {
            return Err("--format applies to random weights: pass either --format or --model".into());
        }
        let name = name.as_deref().unwrap_or("Q4_K");
        let format = DType::ALL.iter().find(|dtype| dtype.name() == name);
        let settings = Self {
            model,
            format: *format.ok_or_else(|| format!("--format {name}: is unknown; pass a format such as Q4_K"))?,
            threads: Cpu::new(args.value("--threads")?)?.device().threads,
            depth: args.value("--depth")?.unwrap_or(256),
            prefill: args.value("--prefill")?.unwrap_or(256),
            reps: args.value("--reps")?.unwrap_or(15),
        };
        if settings.prefill == 0 || settings.reps == 0 {
            return Err("--prefill and --reps must be at least 1".into());
        }
        Ok(settings)
    }

    fn cases(&self) -> Vec<Case> {
        let case = |name: String, sequences, tokens, logits_for| {
            let (seconds, profile) = (vec![], Profile::default());
            Case { name, sequences, tokens, logits_for, seconds, profile }
        };
        let prefill = case(format!("prefill of {}", self.prefill), 1, self.prefill, LogitsFor::Last);
        let single = case("1 token".into(), 1, 1, LogitsFor::Last);
        let several = BATCHES.map(|n| case(format!("{n} sequences, 1 token each"), n, 1, LogitsFor::Last));
        // Like the verification of speculative tokens.
        let run = BATCHES.map(|n| case(format!("1 sequence, {n} tokens"), 1, n, LogitsFor::All));
        [prefill, single].into_iter().chain(several).chain(run).collect()
    }
}

fn measure(decoder: &mut Decoder, settings: &Settings, machine: &mut Machine) -> Result<Vec<Case>> {
    let vocab_size = decoder.limits().vocab_size;
    // Spread over the vocabulary, without its end, where control tokens are.
    let spread = |i: usize| ((i * 7919 + 13) % vocab_size.saturating_sub(100).max(1)) as u32;
    let ids: Vec<u32> = (0..settings.depth + settings.prefill.max(BATCHES[3])).map(spread).collect();
    let (before, ids) = ids.split_at(settings.depth);
    let sequences: Vec<_> = (0..BATCHES[3]).map(|_| decoder.open()).collect();
    if !before.is_empty() {
        sequences.iter().try_for_each(|id| decoder.step(&[(*id, before, LogitsFor::None)]).map(|_| ()))?;
    }
    decoder.set_profiling(true)?;
    let mut cases = settings.cases();
    // The first round is a warm-up and is not counted.
    for rep in 0..=settings.reps {
        for case in &mut cases {
            case.step(decoder, &sequences, ids, rep > 0)?;
            sequences.iter().try_for_each(|sequence| decoder.truncate(*sequence, settings.depth))?;
        }
        machine.measure();
    }
    Ok(cases)
}

impl Case {
    fn step(&mut self, decoder: &mut Decoder, sequences: &[SequenceId], ids: &[u32], is_counted: bool) -> Result<()> {
        let runs: Vec<_> =
            sequences[..self.sequences].iter().map(|id| (*id, &ids[..self.tokens], self.logits_for)).collect();
        decoder.take_profile();
        let started = Instant::now();
        decoder.step(&runs)?;
        let wall = started.elapsed();
        if is_counted {
            self.seconds.push(wall.as_secs_f64());
            self.profile.add(1, wall, decoder.take_profile());
        }
        Ok(())
    }

    /// Returns the median time of a step.
    fn seconds(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    }

    /// Formats a line of the table. `read` is the machine's fastest read in GB/s.
    fn row(&self, read: f64) -> String {
        let seconds = self.seconds();
        let tokens = (self.sequences * self.tokens) as f64;
        let rate = self.profile.bytes() / seconds / 1e9;
        let products = self.profile.share(|op| op.starts_with("matmul"));
        let attention = self.profile.share(|op| op == "attention" || op == "append");
        let waiting = self.profile.share(|op| op == "wait");
        format!(
            "{:<26}{:9.1}{:10.2}{rate:8.1}{:9.0}%{:10.1}%{:10.1}%{:8.1}%{:6.1}%",
            self.name,
            tokens / seconds,
            1e3 * seconds,
            100.0 * rate / read,
            100.0 * products,
            100.0 * attention,
            100.0 * waiting,
            100.0 * (1.0 - products - attention - waiting)
        )
    }
}

fn report(settings: &Settings, machine: &Machine, cases: &[Case]) -> io::Result<()> {
    let mut out = io::stdout();
    let Settings { model, format, threads, depth, reps, .. } = settings;
    let model = match model {
        Some(path) => path.display().to_string(),
        None => format!("random weights with the sizes of Qwen3-0.6B, {format}"),
    };
    writeln!(out, "{model}; {depth} tokens in the cache; medians of {reps}")?;
    writeln!(out, "{threads} threads; reads {:.1} GB/s; f32 FMA {:.0} GFLOP/s\n", machine.read, machine.fma)?;
    writeln!(
        out,
        "a step of                  tokens/s        ms    GB/s  of reads   products  attention  waiting  other"
    )?;
    for case in cases {
        writeln!(out, "{}", case.row(machine.read))?;
    }
    for case in &cases[..2] {
        writeln!(out, "\n{}\n{}", case.name, case.profile)?;
    }
    Ok(())
}
