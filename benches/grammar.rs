//! What a form costs: making the grammars of a vocabulary, making one, a mask before each token, and in tokens a second.
//!
//! For the masks, texts are drawn from what they leave, as by a model that knows nothing, which strays into more of a grammar
//! than models do. Then the model itself generates texts of as many tokens each, free and kept to a schema, in turn.
//!
//!     cargo bench --features constrained --bench grammar -- [--model FILE] [--texts N] [--threads N]

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

  --model FILE  a GGUF file; without one, the model that comes with the repository
  --texts N     texts of each form (20)
  --threads N   that the model runs on (all cores)";

/// The longest text, in tokens.
const LONGEST: usize = 200;

/// How often the model generates a text with and without a form, of which the median counts.
const REPS: usize = 5;

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        // Given by `cargo bench`.
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

/// Tokens a second of texts that may be anything, and of texts that must be of a schema.
fn compare(runner: &mut Runner) -> Result<(), Failure> {
    // Longer than any text here, so that neither ends before it has all its tokens.
    let people = json!({ "type": "array", "items": person(), "minItems": LONGEST });
    let form = runner.grammars()?.json_schema(&people)?;
    let ends = runner.tokenizer().end_of_generation().iter().map(|&id| (id, f32::NEG_INFINITY)).collect();
    let sampler = SamplerOptions { seed: Some(1), logit_bias: ends, ..Default::default() };
    let free = GenerateOptions { sampler, max_tokens: Some(LONGEST), ..Default::default() };
    let kept = GenerateOptions { grammar: Some(form), ..free.clone() };
    let mut rates = [vec![], vec![]];
    for _ in 0..REPS {
        for (options, rates) in [&free, &kept].into_iter().zip(&mut rates) {
            runner.reset();
            let mut generation = runner.generate("All of them, as JSON: ", options)?;
            generation.by_ref().try_for_each(|piece| piece.map(drop))?;
            rates.push(generation.summary().decode_tokens_per_second());
        }
    }
    let [free, kept] = rates.map(|mut rates| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[REPS / 2]
    });
    println!("tokens a second, median of {REPS}: {free:.1} free, {kept:.1} kept to a schema");
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
    println!("{} tokens; their grammars took {:.0} ms", tokenizer.vocab_size(), 1e3 * started.elapsed().as_secs_f64());
    println!("form               made, ms   a mask, µs: median      99%   a token's share at 100 tokens/s");
    report("a schema", tokenizer, texts, || grammars.json_schema(&person()))?;
    report("any JSON", tokenizer, texts, || grammars.json_schema(&json!({})))?;
    report("a date", tokenizer, texts, || grammars.regex("[0-9]{4}-[0-9]{2}-[0-9]{2}"))
}

fn report(
    name: &str,
    tokenizer: &Tokenizer,
    texts: u64,
    make: impl Fn() -> inkstone::Result<Grammar>,
) -> Result<(), Failure> {
    let started = Instant::now();
    let grammar = make()?;
    let made = started.elapsed();
    let mut times = vec![];
    for seed in 0..texts {
        times.extend(masks(tokenizer, &grammar, seed)?);
    }
    times.sort_unstable();
    let micros = |time: Duration| 1e6 * time.as_secs_f64();
    let (median, rare) = (micros(times[times.len() / 2]), micros(times[times.len() * 99 / 100]));
    let made = 1e3 * made.as_secs_f64();
    println!("{name:<16} {made:10.1} {median:20.0} {rare:8.0} {:10.2}%", median / 1e4 * 100.0);
    Ok(())
}

/// How long each mask of a text took, with its way into the logits.
fn masks(tokenizer: &Tokenizer, grammar: &Grammar, seed: u64) -> Result<Vec<Duration>, Failure> {
    let options =
        SamplerOptions { top_k: 0, top_p: 1.0, min_p: 0.0, temperature: 1.0, seed: Some(seed), ..Default::default() };
    let mut sampler = Sampler::new(&options, tokenizer.vocab_size())?;
    let mut constraint = grammar.constraint(tokenizer.vocab_size())?;
    let (mut ids, mut times) = (vec![], vec![]);
    let mut logits = vec![0.0; tokenizer.vocab_size()];
    while times.len() < LONGEST {
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
