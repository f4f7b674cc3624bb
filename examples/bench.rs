//! Measures the speed of a model: the median of several rounds.

#[path = "common/batch.rs"]
mod batch;
mod common;
#[path = "common/drafts.rs"]
mod drafts;
#[path = "common/picture.rs"]
mod picture;
#[path = "common/profile.rs"]
mod profile;

use std::{
    fs,
    io::{self, Write},
    ops::Range,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use inkstone::{Device, OpTime, Runner, SamplerOptions, Speculation, sampler::Sampler};

use batch::{BatchSizes, Batches};
use common::Failure;
use drafts::Drafts;
use picture::PictureSize;
use profile::Profile;

const USAGE: &str = "
Usage: bench --model FILE [OPTIONS]

Measures the speed of prefill and decode in tokens per second. A warm-up round is not counted.

  --model FILE       a GGUF file, or a directory of safetensors
  --prefill N        tokens of the prompt (256)
  --decode N         tokens to generate after the prompt (48)
  --depth N          tokens in the cache before the prompt (0)
  --reps N           rounds, of which the median is reported (3)
  --device NAME      auto, cpu, gpu, or a part of a GPU's name (auto)
  --chunk N          tokens of the prompt per step (1024 or 512 on a GPU, 256 on the CPU)
  --threads N        CPU threads (one per core)
  --batch N,N,..     measures steps that append a token to each of N sequences instead, with --depth tokens in the cache
                     of each (128)
  --sample           computes the 40 largest logits of each token, as sampling does by default, instead of one
  --draft FILE       measures decoding with the drafts of a smaller model instead, and in turn without
  --accept P         the same with a drafter that knows the text, and spoils it so that the share P of drafts is right
  --draft-tokens N   maximum number of tokens to draft per step (as many as are fast)
  --ngram            the same with drafts from repetitions in the text
  --mtp              the same with drafts of the model's head for multi-token prediction
  --image WxH        measures a picture of this size instead: the time to encode it, and the prefill of its rows
  --mmproj FILE      the vision encoder (the file mmproj*.gguf beside the model)
  --profile          reports the time of each op, per prompt and per token; measuring costs a little time
  --json             prints one line of JSON
  --help             prints this help";

struct Settings {
    prefill: usize,
    decode: usize,
    depth: usize,
    reps: usize,
    sample: bool,
    profile: bool,
}

/// The time of a round, and of its ops.
pub struct Measured {
    wall: Duration,
    ops: Vec<OpTime>,
}

/// The measurements of prefill or decode.
#[derive(Default)]
struct Phase {
    /// Rate of each round in tokens per second.
    rates: Vec<f64>,
    /// Time that the host took to encode each step for a GPU, in seconds.
    encodings: Vec<f64>,
    profile: Profile,
}

impl Phase {
    /// Adds a round of `tokens` tokens, whose profile is reported per item: `items` prompts or
    /// tokens.
    fn add(&mut self, tokens: usize, items: usize, Measured { wall, ops }: Measured) {
        self.rates.push(tokens as f64 / wall.as_secs_f64());
        self.profile.add(items, wall, ops);
    }

    /// Returns the median rate of the rounds, in tokens per second.
    fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// Returns the median encoding time of a step, in microseconds.
    fn encoding(&self) -> f64 {
        1e6 * median(&self.encodings)
    }
}

/// Returns the median of some numbers.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        let path: PathBuf = args.required("--model")?;
        let reps = args.value("--reps")?.unwrap_or(3);
        let threads: Option<usize> = args.value("--threads")?;
        let device: Device = args.value("--device")?.unwrap_or_default();
        let chunk: Option<usize> = args.value("--chunk")?;
        let builder = Runner::builder().device(device);
        let builder = chunk.into_iter().fold(builder, |builder, chunk| builder.prefill_chunk(chunk));
        let builder = threads.into_iter().fold(builder, |builder, threads| builder.threads(threads));
        if let Some(size) = args.value::<PictureSize>("--image")? {
            let mmproj: Option<PathBuf> = args.value("--mmproj")?;
            // No other option has a meaning for pictures.
            args.finish()?;
            let builder = mmproj.into_iter().fold(builder, |builder, mmproj| builder.vision(mmproj));
            return picture::measure(&mut builder.from_path(path)?, size, reps);
        }
        let depth: Option<usize> = args.value("--depth")?;
        let decode = args.value("--decode")?.unwrap_or(48);
        if let Some(sizes) = args.value::<BatchSizes>("--batch")? {
            let (profile, json) = (args.flag("--profile"), args.flag("--json"));
            args.finish()?;
            if decode == 0 || reps == 0 {
                return Err("--decode and --reps must be at least 1".into());
            }
            let batches = Batches { sizes, depth: depth.unwrap_or(128), steps: decode, reps, profile, json };
            let builder = builder.context_length(batches.context_length()).without_vision();
            return batches.measure(&mut builder.from_path(path)?);
        }
        let draft: Option<PathBuf> = args.value("--draft")?;
        let accepted: Option<f64> = args.value("--accept")?;
        let (ngrams, mtp) = (args.flag("--ngram"), args.flag("--mtp"));
        if draft.is_some() || accepted.is_some() || ngrams || mtp {
            let limit: Option<usize> = args.value("--draft-tokens")?;
            let (prefill, json) = (args.value("--prefill")?.unwrap_or(256), args.flag("--json"));
            args.finish()?;
            if prefill == 0 || decode == 0 || reps == 0 {
                return Err("--prefill, --decode and --reps must be at least 1".into());
            }
            let builder = builder.without_vision().context_length(prefill + decode);
            let builder = if ngrams { builder } else { builder.without_ngrams() };
            let builder = if mtp { builder } else { builder.without_mtp() };
            let mut runner = draft.into_iter().fold(builder, |builder, path| builder.draft(path)).from_path(path)?;
            let vocab_size = runner.config().vocab_size;
            let prompt = (0..prefill).map(|index| spread(index, vocab_size)).collect();
            let speculation = limit.map_or(Speculation::Auto, Speculation::AtMost);
            let drafts = Drafts { prompt, tokens: decode, reps, speculation, accepted };
            return drafts.measure(&mut runner, json);
        }
        let settings = Settings {
            prefill: args.value("--prefill")?.unwrap_or(256),
            decode,
            depth: depth.unwrap_or(0),
            reps,
            sample: args.flag("--sample"),
            profile: args.flag("--profile"),
        };
        let json = args.flag("--json");
        args.finish()?;
        if settings.prefill == 0 || settings.decode == 0 || reps == 0 {
            return Err("--prefill, --decode and --reps must be at least 1".into());
        }
        let tokens = settings.depth.saturating_add(settings.prefill).saturating_add(settings.decode);
        let builder = builder.context_length(tokens).without_vision();
        let start = Instant::now();
        let mut runner = builder.from_path(path)?;
        let load = start.elapsed().as_secs_f64();
        runner.decoder_mut().set_profiling(settings.profile)?;
        let phases = measure(&mut runner, &settings)?;
        let report = if json { report_json } else { report };
        Ok(report(&mut runner, &settings, load, &phases)?)
    })
}

/// Measures prefill and decode.
fn measure(runner: &mut Runner, settings: &Settings) -> Result<[Phase; 2], Failure> {
    let vocab_size = runner.config().vocab_size;
    let ids = |range: Range<usize>| -> Vec<u32> { range.map(|index| spread(index, vocab_size)).collect() };
    let (ids, depth) = (ids(0..settings.prefill), ids(settings.prefill..settings.prefill + settings.depth));
    let [mut prefill, mut decode] = [Phase::default(), Phase::default()];
    for rep in 0..=settings.reps {
        runner.reset();
        if !depth.is_empty() {
            runner.prefill(&depth)?;
        }
        runner.decoder_mut().take_profile();
        let start = Instant::now();
        let mut id = largest(runner.prefill(&ids)?);
        let prefilled = Measured { wall: start.elapsed(), ops: runner.decoder_mut().take_profile() };
        let start = Instant::now();
        for _ in 0..settings.decode {
            id = next(runner, id, settings.sample)?;
            decode.encodings.push(runner.decoder_mut().usage().encoding.as_secs_f64());
        }
        let decoded = Measured { wall: start.elapsed(), ops: runner.decoder_mut().take_profile() };
        if rep > 0 {
            prefill.add(settings.prefill, 1, prefilled);
            decode.add(settings.decode, settings.decode, decoded);
        }
    }
    Ok([prefill, decode])
}

/// Decodes a token and returns the most probable next one. With `sample`, computes the logits that
/// sampling needs by default.
fn next(runner: &mut Runner, id: u32, sample: bool) -> Result<u32, Failure> {
    if !sample {
        return Ok(runner.decode_greedy(id)?);
    }
    let sequence = runner.sequence();
    let top = runner.decoder_mut().best(&[(sequence, id)], SamplerOptions::default().top_k)?;
    let best = top.map(|top| top[0].best[0].id);
    let sampler = SamplerOptions { seed: Some(1), ..SamplerOptions::default() };
    match best {
        Some(id) => Ok(id),
        None => Ok(Sampler::new(&sampler, runner.config().vocab_size)?.sample(runner.decoder_mut().logits_mut())?),
    }
}

fn report(runner: &mut Runner, settings: &Settings, load: f64, [prefill, decode]: &[Phase; 2]) -> io::Result<()> {
    let mut out = io::stdout();
    let device = runner.device().clone();
    let Settings { prefill: prefill_tokens, decode: decode_tokens, depth, .. } = settings;
    writeln!(out, "device   {} ({}), {} threads", device.name, device.details, device.threads)?;
    if let Some(why) = &device.fallback {
        writeln!(out, "         instead of a GPU: {why}")?;
    }
    writeln!(out, "load     {load:.3} s")?;
    writeln!(out, "prefill  {:.2} tokens/s ({prefill_tokens} tokens after {depth})", prefill.rate())?;
    writeln!(out, "decode   {:.2} tokens/s ({decode_tokens} tokens)", decode.rate())?;
    let usage = runner.decoder_mut().usage();
    if usage.dispatches > 0 {
        let (dispatches, encoding) = (usage.dispatches, decode.encoding());
        writeln!(out, "GPU      {dispatches} dispatches per token, encoded in {encoding:.0} µs")?;
        writeln!(out, "         {:.1} MB", usage.device_bytes as f64 / 1e6)?;
    }
    if let Some(mb) = peak_rss_mb() {
        writeln!(out, "memory   {mb:.1} MB peak")?;
    }
    if settings.profile {
        writeln!(out, "\nprefill, a prompt of {prefill_tokens} tokens\n{}", prefill.profile)?;
        writeln!(out, "\ndecode, a token\n{}", decode.profile)?;
    }
    Ok(())
}

fn report_json(runner: &mut Runner, settings: &Settings, load: f64, [prefill, decode]: &[Phase; 2]) -> io::Result<()> {
    let profiles = if settings.profile {
        format!(",\"prefill_profile\":{},\"decode_profile\":{}", prefill.profile.json(), decode.profile.json())
    } else {
        String::new()
    };
    let rss = peak_rss_mb().map_or("null".into(), |mb| format!("{mb:.1}"));
    let usage = runner.decoder_mut().usage();
    writeln!(
        io::stdout(),
        "{{\"threads\":{},\"load_s\":{load:.3},\"prefill_tokens\":{},\"decode_tokens\":{},\
         \"prefill_tok_s\":{:.2},\"decode_tok_s\":{:.2},\"peak_rss_mb\":{rss},\
         \"dispatches_per_token\":{},\"encoding_us\":{:.0},\"gpu_mb\":{:.1}{profiles}}}",
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

/// Returns an id for a token. The ids are spread over the vocabulary, without its end, where
/// control tokens are.
pub fn spread(index: usize, vocab_size: usize) -> u32 {
    ((index * 7919 + 13) % vocab_size.saturating_sub(100).max(1)) as u32
}

fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best }) as u32
}

/// Returns the peak resident memory of the process in 10^6 bytes, or `None` except on Linux.
fn peak_rss_mb() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0 / 1e6)
}
