//! How fast a model runs: the median of several rounds.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use inkstone::{
    Runner, SamplerOptions,
    backend::{Device, OpTime},
    sampler::Sampler,
};

use common::Failure;
use profile::Profile;

mod common;
#[path = "common/profile.rs"]
mod profile;

const USAGE: &str = "
Usage: bench --model FILE [OPTIONS]

Measures how fast a prompt is computed and how fast tokens follow it, in tokens a second; a first round is not counted.

  --model FILE       a GGUF file, or a directory of safetensors
  --prefill N        tokens of the prompt (256)
  --decode N         tokens that follow (48)
  --depth N          tokens in the cache before the prompt (0)
  --reps N           rounds; the medians are given (3)
  --device NAME      auto, cpu, gpu, or a part of a GPU's name (auto)
  --chunk N          tokens of the prompt that are computed at once (512 on a GPU, 256 on the CPU)
  --threads N        CPU threads (one for each core)
  --sample           looks at the 40 largest logits of each token, as sampling does by default, not at the largest alone
  --profile          says where the time goes, by op: of a prompt, and of a token that follows; taking the times
                     costs a little itself
  --json             prints one line of JSON
  --help             prints this";

struct Settings {
    prefill: usize,
    decode: usize,
    depth: usize,
    reps: usize,
    sample: bool,
    profile: bool,
}

/// Prompts, or the tokens that follow: how fast each round was, in tokens a second, and where the time went.
#[derive(Default)]
struct Phase {
    rates: Vec<f64>,
    /// How long the host took to hand steps to a GPU, in seconds.
    encodings: Vec<f64>,
    profile: Profile,
}

impl Phase {
    /// Takes note of a round of so many tokens, in so many pieces to be shown one of.
    fn add(&mut self, tokens: usize, pieces: usize, (wall, ops): (Duration, Vec<OpTime>)) {
        self.rates.push(tokens as f64 / wall.as_secs_f64());
        self.profile.add(pieces, wall, ops);
    }

    /// The median of the rounds.
    fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// The median of the steps, in microseconds.
    fn encoding(&self) -> f64 {
        1e6 * median(&self.encodings)
    }
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        let path: PathBuf = args.required("--model")?;
        let settings = Settings {
            prefill: args.value("--prefill")?.unwrap_or(256),
            decode: args.value("--decode")?.unwrap_or(48),
            depth: args.value("--depth")?.unwrap_or(0),
            reps: args.value("--reps")?.unwrap_or(3),
            sample: args.flag("--sample"),
            profile: args.flag("--profile"),
        };
        let threads: Option<usize> = args.value("--threads")?;
        let device: Device = args.value("--device")?.unwrap_or_default();
        let chunk: Option<usize> = args.value("--chunk")?;
        let json = args.flag("--json");
        args.finish()?;
        if settings.prefill == 0 || settings.decode == 0 || settings.reps == 0 {
            return Err("--prefill, --decode and --reps must be at least 1".into());
        }
        let tokens = settings.depth.saturating_add(settings.prefill).saturating_add(settings.decode);
        let builder = Runner::builder().context_length(tokens).device(device);
        let builder = chunk.into_iter().fold(builder, |builder, chunk| builder.prefill_chunk(chunk));
        let builder = threads.into_iter().fold(builder, |builder, threads| builder.threads(threads));
        let start = Instant::now();
        let mut runner = builder.from_path(path)?;
        let load = start.elapsed().as_secs_f64();
        runner.decoder().set_profiling(settings.profile)?;
        let phases = measure(&mut runner, &settings)?;
        let report = if json { report_json } else { report };
        Ok(report(&mut runner, &settings, load, &phases)?)
    })
}

/// The prompts, and the tokens that follow.
fn measure(runner: &mut Runner, settings: &Settings) -> Result<[Phase; 2], Failure> {
    let vocab_size = runner.config().vocab_size;
    // Spread over the vocabulary; its end is where control tokens are.
    let spread = |i: usize| ((i * 7919 + 13) % vocab_size.saturating_sub(100).max(1)) as u32;
    let ids: Vec<u32> = (0..settings.prefill).map(spread).collect();
    let depth: Vec<u32> = (settings.prefill..settings.prefill + settings.depth).map(spread).collect();
    let [mut prefill, mut decode] = [Phase::default(), Phase::default()];
    for rep in 0..=settings.reps {
        runner.reset();
        if !depth.is_empty() {
            runner.prefill(&depth)?;
        }
        runner.decoder().take_profile();
        let start = Instant::now();
        let mut id = largest(runner.prefill(&ids)?);
        let prefilled = (start.elapsed(), runner.decoder().take_profile());
        let start = Instant::now();
        for _ in 0..settings.decode {
            id = next(runner, id, settings.sample)?;
            decode.encodings.push(runner.decoder().usage().encoding.as_secs_f64());
        }
        let decoded = (start.elapsed(), runner.decoder().take_profile());
        if rep > 0 {
            prefill.add(settings.prefill, 1, prefilled);
            decode.add(settings.decode, settings.decode, decoded);
        }
    }
    Ok([prefill, decode])
}

/// The most probable token, whatever else is looked at.
fn next(runner: &mut Runner, id: u32, sample: bool) -> Result<u32, Failure> {
    if !sample {
        return Ok(runner.decode_greedy(id)?);
    }
    let sequence = runner.sequence();
    let best = runner.decoder().best(sequence, id, SamplerOptions::default().top_k)?.map(|best| best[0].id);
    let sampler = SamplerOptions { seed: Some(1), ..SamplerOptions::default() };
    match best {
        Some(id) => Ok(id),
        None => Ok(Sampler::new(&sampler, runner.config().vocab_size)?.sample(runner.decoder().logits())?),
    }
}

fn report(runner: &mut Runner, settings: &Settings, load: f64, [prefill, decode]: &[Phase; 2]) -> io::Result<()> {
    let mut out = io::stdout();
    let device = runner.device().clone();
    let Settings { prefill: prefill_tokens, decode: decode_tokens, depth, .. } = settings;
    writeln!(out, "device   {} ({}), {} threads", device.name, device.details, device.threads)?;
    if let Some(why) = &device.fallback {
        writeln!(out, "         in place of a GPU: {why}")?;
    }
    writeln!(out, "load     {load:.3} s")?;
    writeln!(out, "prefill  {:.2} tokens/s ({prefill_tokens} tokens after {depth})", prefill.rate())?;
    writeln!(out, "decode   {:.2} tokens/s ({decode_tokens} tokens)", decode.rate())?;
    let usage = runner.decoder().usage();
    if usage.dispatches > 0 {
        let (dispatches, encoding) = (usage.dispatches, decode.encoding());
        writeln!(out, "GPU      {dispatches} dispatches a token, handed over in {encoding:.0} µs")?;
        writeln!(out, "         {:.1} MB", usage.device_bytes as f64 / 1e6)?;
    }
    if let Some(mb) = peak_rss_mb() {
        writeln!(out, "memory   {mb:.1} MB at its peak")?;
    }
    if settings.profile {
        writeln!(out, "\nprefill, a prompt of {prefill_tokens} tokens\n{}", prefill.profile)?;
        writeln!(out, "\ndecode, a token\n{}", decode.profile)?;
    }
    Ok(())
}

fn report_json(runner: &mut Runner, settings: &Settings, load: f64, [prefill, decode]: &[Phase; 2]) -> io::Result<()> {
    let profiles = match settings.profile {
        true => format!(",\"prefill_profile\":{},\"decode_profile\":{}", prefill.profile.json(), decode.profile.json()),
        false => String::new(),
    };
    let rss = peak_rss_mb().map_or("null".into(), |mb| format!("{mb:.1}"));
    let usage = runner.decoder().usage();
    writeln!(
        io::stdout(),
        "{{\"threads\":{},\"load_s\":{load:.3},\"prefill_tokens\":{},\"decode_tokens\":{},\
         \"prefill_tok_s\":{:.2},\"decode_tok_s\":{:.2},\"peak_rss_mb\":{rss},\"dispatches_per_token\":{},\"encoding_us\":{:.0},\"gpu_mb\":{:.1}{profiles}}}",
        runner.device().threads,
        settings.prefill,
        settings.decode,
        prefill.rate(),
        decode.rate(),
        usage.dispatches,
        decode.encoding(),
        usage.device_bytes as f64 / 1e6,
    )
}

fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best }) as u32
}

/// The most memory that the process has had resident, where the system says so (Linux), in 10^6 bytes.
fn peak_rss_mb() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0 / 1e6)
}
