//! The options with which an example generates text, and how it shows the text.

use std::{fmt::Display, str::FromStr};

use inkstone::{
    GenerateOptions, SamplerOptions, Summary,
    sampler::{Mirostat, MirostatVersion, Xtc},
};

use crate::common::{Args, Failure};

/// The usage of what [`generate_options`] takes.
pub const SAMPLING_OPTIONS: &str = "  --max-tokens N     the most tokens to generate (1024)
  --stop TEXT        ends the text where this comes up
  --temperature T    0 always takes the most probable token (0.8)
  --top-k N          samples from so many tokens at most; 0 for all (40)
  --top-p P          samples from the most probable tokens that make up P together (0.95)
  --min-p P          leaves out tokens less than P times as probable as the best (0.05)
  --typical-p P      samples from the tokens of the most usual surprise that make up P together (1)
  --xtc P            with this probability, leaves out all tokens of 0.1 and more but the last of them (0)
  --mirostat TAU     keeps the surprise of the text at TAU bits a token, in place of the five above
  --repetition-penalty R  above 1, makes what was just said less probable (1)
  --presence-penalty X    above 0, makes what was said at all less probable (0)
  --seed S           the same seed gives the same text";

/// Takes the options for generating.
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
    let default = GenerateOptions::default();
    let max_tokens = args.value("--max-tokens")?.or(default.max_tokens);
    Ok(GenerateOptions { sampler, max_tokens, stop, ..default })
}

fn set<T: FromStr<Err: Display>>(args: &mut Args, name: &str, option: &mut T) -> Result<(), Failure> {
    if let Some(value) = args.value(name)? {
        *option = value;
    }
    Ok(())
}

/// Says on standard error how fast a text came and why it ended.
pub fn report(summary: &Summary) {
    eprintln!(
        "[prompt: {} tokens, {} of them cached, {:.1} tokens/s; text: {} tokens, {:.1} tokens/s; seed {}; ended by {:?}]",
        summary.prompt_tokens,
        summary.cached_tokens,
        summary.prefill_tokens_per_second(),
        summary.generated_tokens,
        summary.decode_tokens_per_second(),
        summary.seed,
        summary.stop,
    );
}
