//! How fast a model runs: the median of several rounds.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use inkstone::Runner;

use common::Failure;

mod common;

const USAGE: &str = "
Usage: bench --model FILE [OPTIONS]

Measures how fast a prompt is computed and how fast tokens follow it, in tokens a second; a first round is not counted.

  --model FILE       a GGUF file
  --prefill N        tokens of the prompt (256)
  --decode N         tokens that follow (48)
  --depth N          tokens in the cache before the prompt (0)
  --reps N           rounds; the medians are given (3)
  --threads N        CPU threads (one for each core)
  --json             prints one line of JSON
  --help             prints this";

struct Settings {
    prefill: usize,
    decode: usize,
    depth: usize,
    reps: usize,
}

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        let path: PathBuf = args.required("--model")?;
        let settings = Settings {
            prefill: args.value("--prefill")?.unwrap_or(256),
            decode: args.value("--decode")?.unwrap_or(48),
            depth: args.value("--depth")?.unwrap_or(0),
            reps: args.value("--reps")?.unwrap_or(3),
        };
        let threads: Option<usize> = args.value("--threads")?;
        let json = args.flag("--json");
        args.finish()?;
        if settings.prefill == 0 || settings.decode == 0 || settings.reps == 0 {
            return Err("--prefill, --decode and --reps must be at least 1".into());
        }
        let tokens = settings.depth.saturating_add(settings.prefill).saturating_add(settings.decode);
        let builder = Runner::builder().context_length(tokens);
        let builder = threads.into_iter().fold(builder, |builder, threads| builder.threads(threads));
        let start = Instant::now();
        let mut runner = builder.from_gguf(path)?;
        let load = start.elapsed().as_secs_f64();
        let (prefill, decode) = measure(&mut runner, &settings)?;
        Ok(report(&runner, &settings, load, [prefill, decode], json)?)
    })
}

/// The medians of prefill and decode, in tokens a second.
fn measure(runner: &mut Runner, settings: &Settings) -> Result<(f64, f64), Failure> {
    let vocab_size = runner.config().vocab_size;
    // Spread over the vocabulary; its end is where control tokens are.
    let spread = |i: usize| ((i * 7919 + 13) % vocab_size.saturating_sub(100).max(1)) as u32;
    let ids: Vec<u32> = (0..settings.prefill).map(spread).collect();
    let depth: Vec<u32> = (settings.prefill..settings.prefill + settings.depth).map(spread).collect();
    let (mut prefill, mut decode) = (vec![], vec![]);
    for rep in 0..=settings.reps {
        runner.reset();
        if !depth.is_empty() {
            runner.prefill(&depth)?;
        }
        let start = Instant::now();
        let mut id = largest(runner.prefill(&ids)?);
        let prefilled = start.elapsed().as_secs_f64();
        let start = Instant::now();
        for _ in 0..settings.decode {
            id = largest(runner.decode(id)?);
        }
        let decoded = start.elapsed().as_secs_f64();
        if rep > 0 {
            prefill.push(settings.prefill as f64 / prefilled);
            decode.push(settings.decode as f64 / decoded);
        }
    }
    Ok((median(prefill), median(decode)))
}

fn report(runner: &Runner, settings: &Settings, load: f64, [prefill, decode]: [f64; 2], json: bool) -> io::Result<()> {
    let mut out = io::stdout();
    let device = runner.device();
    let rss = peak_rss_mb();
    let Settings { prefill: prefill_tokens, decode: decode_tokens, depth, .. } = settings;
    if json {
        let rss = rss.map_or("null".into(), |mb| format!("{mb:.1}"));
        return writeln!(
            out,
            "{{\"threads\":{},\"load_s\":{load:.3},\"prefill_tokens\":{prefill_tokens},\"decode_tokens\":{decode_tokens},\
             \"prefill_tok_s\":{prefill:.2},\"decode_tok_s\":{decode:.2},\"peak_rss_mb\":{rss}}}",
            device.threads
        );
    }
    writeln!(out, "device   {} ({}), {} threads", device.name, device.details, device.threads)?;
    writeln!(out, "load     {load:.3} s")?;
    writeln!(out, "prefill  {prefill:.2} tokens/s ({prefill_tokens} tokens after {depth})")?;
    writeln!(out, "decode   {decode:.2} tokens/s ({decode_tokens} tokens)")?;
    if let Some(mb) = rss {
        writeln!(out, "memory   {mb:.1} MB at its peak")?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
