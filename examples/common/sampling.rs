//! Parses the options for generation, and prints a summary of a generated text.

use std::{fmt::Display, path::PathBuf, str::FromStr};

use inkstone::{
    GenerateOptions, RunnerBuilder, SamplerOptions, Speculation, SpeculationSummary, Summary,
    sampler::{Mirostat, MirostatVersion, Xtc},
};

use crate::common::{Args, Failure};

/// Usage of the options that [`generate_options`] parses.
pub const SAMPLING_OPTIONS: &str = "  --max-tokens N     maximum number of tokens to generate (1024)
  --stop TEXT        ends the generated text at TEXT
  --temperature T    sampling temperature; 0 always chooses the most probable token (0.8)
  --top-k N          samples from the N most probable tokens; 0 for all (40)
  --top-p P          samples from the most probable tokens with a total probability of P (0.95)
  --min-p P          excludes tokens less than P times as probable as the most probable one (0.05)
  --typical-p P      samples from the tokens of most typical surprise with a total probability of P (1)
  --xtc P            with probability P, excludes all but the least probable token of at least 0.1 (0)
  --mirostat TAU     keeps the surprise at TAU bits per token, instead of the five options above
  --repetition-penalty R  above 1, makes recent tokens less probable (1)
  --presence-penalty X    above 0, makes tokens that already occurred less probable (0)
  --seed S           random seed; the same seed generates the same text
  --draft FILE       a smaller model with the same vocabulary, which drafts tokens; the text stays the same
  --draft-tokens N   maximum number of tokens to draft per step (as many as are fast)
  --no-speculation   drafts no tokens";

/// Parses the options for generation.
pub fn generate_options(args: &mut Args) -> Result<GenerateOptions, Failure> {
    let mut sampler = SamplerOptions::default();
    set(args, "--temperature", &mut sampler.temperature)?;
    set(args, "--top-k", &mut sampler.top_k)?;
    set(args, "--top-p", &mut sampler.top_p)?;
    set(args, "--min-p", &mut sampler.min_p)?;
    set(args, "--typical-p", &mut sampler.typical_p)?;
    set(args, "--repetition-penalty", &mut sampler.repetition_penalty)?;
    set(args, "--presence-penalty", &mut sampler.presence_penalty)?;
    sampler.xtc = args.value("--xtc")?.map(|probability| Xtc { probability, threshold: 0.1 });
    sampler.mirostat = args.value("--mirostat")?.map(|tau| Mirostat { version: MirostatVersion::Two, tau, eta: 0.1 });
    sampler.seed = args.value("--seed")?;
    let stop = args.value::<String>("--stop")?.into_iter().collect();
    let speculation = speculation(args)?;
    let default = GenerateOptions::default();
    let max_tokens = args.value("--max-tokens")?.or(default.max_tokens);
    Ok(GenerateOptions { sampler, max_tokens, stop, speculation, ..default })
}

/// Parses the number of tokens to draft.
fn speculation(args: &mut Args) -> Result<Speculation, Failure> {
    match (args.value("--draft-tokens")?, args.flag("--no-speculation")) {
        (Some(_), true) => Err("pass either --draft-tokens or --no-speculation".into()),
        (Some(tokens), false) => Ok(Speculation::AtMost(tokens)),
        (None, true) => Ok(Speculation::Off),
        (None, false) => Ok(Speculation::Auto),
    }
}

/// Parses the draft model.
pub fn with_draft(builder: RunnerBuilder, args: &mut Args) -> Result<RunnerBuilder, Failure> {
    Ok(match args.value::<PathBuf>("--draft")? {
        Some(path) => builder.draft(path),
        None => builder,
    })
}

fn set<T: FromStr<Err: Display>>(args: &mut Args, name: &str, option: &mut T) -> Result<(), Failure> {
    if let Some(value) = args.value(name)? {
        *option = value;
    }
    Ok(())
}

/// Prints the speed of a generation and its stop reason to standard error.
pub fn report(summary: &Summary) {
    eprintln!(
        "[prompt: {} tokens ({} cached), {:.1} tokens/s; text: {} tokens, {:.1} tokens/s; seed {}; stop: {:?}]",
        summary.prompt_tokens,
        summary.cached_tokens,
        summary.prefill_tokens_per_second(),
        summary.generated_tokens,
        summary.decode_tokens_per_second(),
        summary.seed,
        summary.stop,
    );
    let speculation @ SpeculationSummary { drafted, accepted, steps, .. } = &summary.speculation;
    if *steps > 0 {
        let per_step = speculation.tokens_per_step();
        eprintln!("[drafts: {accepted} of {drafted} accepted, {per_step:.1} tokens in each of {steps} steps]");
    }
}
