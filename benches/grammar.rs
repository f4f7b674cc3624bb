//! Measures the cost of constrained generation: compiling the grammars of a vocabulary, compiling a
//! grammar, a mask per token, and tokens per second.
//!
//! Masks are measured on texts whose tokens are drawn uniformly from the allowed ones, which
//! reaches more states of a grammar than the text of a model. Then the model generates texts of
//! equal length, with and without a schema, in turn.
//!
//!     cargo bench --features constrained --bench grammar -- --help

#[path = "../examples/common/mod.rs"]
mod common;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use inkstone::{
    Device, GenerateOptions, Runner, SamplerOptions,
    grammar::{Grammar, Grammars},
    sampler::{LogitsProcessor, Sampler},
    tokenizer::Tokenizer,
};
use serde_json::{Value, json};

use common::Failure;

const USAGE: &str = "
Usage: cargo bench --features constrained --bench grammar -- [OPTIONS]

  --model FILE  a GGUF file (default: the model in this repository)
  --texts N     texts for each grammar (20)
  --threads N   CPU threads (one per core)";

/// Maximum number of tokens in a text.
const MAX_TOKENS: usize = 200;

/// Number of texts with and without a grammar; the median counts.
const REPS: usize = 5;

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        // Cargo passes this flag to every benchmark.
        args.flag("--bench");
        let model: Option<PathBuf> = args.value("--model")?;
        let texts = args.value("--texts")?.unwrap_or(20);
        let threads = args.value("--threads")?;
        args.finish()?;
        let path = model.unwrap_or_else(|| "tests/data/storyteller/storyteller.gguf".into());
        let builder = Runner::builder().device(Device::Cpu);
        let mut runner = threads.map_or(builder.clone(), |threads| builder.threads(threads)).from_path(path)?;
        measure(runner.tokenizer(), texts)?;
        compare(&mut runner)
    })
}

/// Prints the speed of generation without constraints and with a schema.
fn compare(runner: &mut Runner) -> Result<(), Failure> {
    // The array is longer than any text, so that both texts have the maximum number of tokens.
    let people = json!({ "type": "array", "items": person(), "minItems": MAX_TOKENS });
    let grammar = runner.grammars()?.json_schema(&people)?;
    let no_end = runner.tokenizer().end_of_generation().iter().map(|&id| (id, f32::NEG_INFINITY)).collect();
    let sampler = SamplerOptions { seed: Some(1), logit_bias: no_end, ..Default::default() };
    let free = GenerateOptions { sampler, max_tokens: Some(MAX_TOKENS), ..Default::default() };
    let constrained = GenerateOptions { grammar: Some(grammar), ..free.clone() };
    let mut rates = [vec![], vec![]];
    for _ in 0..REPS {
        for (options, rates) in [&free, &constrained].into_iter().zip(&mut rates) {
            runner.reset();
            let mut generation = runner.generate("All of them, as JSON: ", options)?;
            generation.by_ref().try_for_each(|piece| piece.map(drop))?;
            rates.push(generation.summary().decode_tokens_per_second());
        }
    }
    let [free, constrained] = rates.map(|mut rates| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[REPS / 2]
    });
    println!("tokens/s, median of {REPS}: {free:.1} free, {constrained:.1} with a schema");
    Ok(())
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "age": { "type": "integer", "minimum": 0, "maximum": 150 },
            "email": { "type": "string", "format": "email" },
            "tags": { "type": "array", "items": { "enum": ["new", "old", "lost"] }, "maxItems": 9 },
        },
        "required": ["name", "age", "email", "tags"],
        "additionalProperties": false,
    })
}

fn measure(tokenizer: &Tokenizer, texts: u64) -> Result<(), Failure> {
    let started = Instant::now();
    let grammars = Grammars::new(tokenizer)?;
    println!("{} tokens; grammars compiled in {:.0} ms", tokenizer.vocab_size(), 1e3 * started.elapsed().as_secs_f64());
    println!("grammar        compiled, ms   mask, µs: median        99%   share of a token at 100 tokens/s");
    report("a schema", tokenizer, texts, || grammars.json_schema(&person()))?;
    report("any JSON", tokenizer, texts, || grammars.json_schema(&json!({})))?;
    report("a date", tokenizer, texts, || grammars.regex("[0-9]{4}-[0-9]{2}-[0-9]{2}"))
}

fn report(
    name: &str,
    tokenizer: &Tokenizer,
    texts: u64,
    compile: impl Fn() -> inkstone::Result<Grammar>,
) -> Result<(), Failure> {
    let started = Instant::now();
    let grammar = compile()?;
    let compile_time = started.elapsed();
    let mut times = vec![];
    for seed in 0..texts {
        times.extend(mask_times(tokenizer, &grammar, seed)?);
    }
    times.sort_unstable();
    let micros = |time: Duration| 1e6 * time.as_secs_f64();
    let (median, percentile_99) = (micros(times[times.len() / 2]), micros(times[times.len() * 99 / 100]));
    let millis = 1e3 * compile_time.as_secs_f64();
    println!("{name:<16} {millis:10.1} {median:18.0} {percentile_99:10.0} {:10.2}%", median / 1e4 * 100.0);
    Ok(())
}

/// Returns the time of each mask of a text, including its application to the logits.
fn mask_times(tokenizer: &Tokenizer, grammar: &Grammar, seed: u64) -> Result<Vec<Duration>, Failure> {
    let options =
        SamplerOptions { top_k: 0, top_p: 1.0, min_p: 0.0, temperature: 1.0, seed: Some(seed), ..Default::default() };
    let mut sampler = Sampler::new(&options, tokenizer.vocab_size())?;
    let mut constraint = grammar.constraint(tokenizer.vocab_size())?;
    let (mut ids, mut times) = (vec![], vec![]);
    let mut logits = vec![0.0; tokenizer.vocab_size()];
    while times.len() < MAX_TOKENS {
        logits.fill(0.0);
        let started = Instant::now();
        constraint.process(&ids, &mut logits)?;
        times.push(started.elapsed());
        let id = sampler.sample(&mut logits)?;
        if tokenizer.is_end_of_generation(id) {
            break;
        }
        ids.push(id);
    }
    Ok(times)
}
