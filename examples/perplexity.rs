//! Computes the perplexity of a text.

mod common;
#[path = "common/model.rs"]
mod model;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use inkstone::Runner;

use common::Failure;

const USAGE: &str = "
Usage: perplexity --model FILE [OPTIONS] TEXT_FILE

Prints the perplexity of a text: the exponential of the mean of -ln p over its tokens, where p is the probability of a
token given the previous tokens. The text is divided into windows, which are computed separately; the first token of a
window does not count.

  --model FILE       a GGUF file, or a directory of safetensors
  --window N         tokens per window (512, or the context if that is less)";

fn main() -> ExitCode {
    let usage = [USAGE, model::MODEL_OPTIONS, "  --help             prints this help"].join("\n");
    common::run(&usage, |mut args| {
        let path: PathBuf = args.required("--model")?;
        let window: Option<usize> = args.value("--window")?;
        let builder = model::builder(&mut args)?;
        let text_file = args.positional()?.ok_or("a text file is missing (see --help)")?;
        args.finish()?;
        let text = fs::read_to_string(&text_file).map_err(|e| format!("{text_file}: {e}"))?;
        let mut runner = builder.from_path(path)?;
        let ids = runner.tokenizer().encode_prompt(&text)?;
        let window = window.unwrap_or(512.min(runner.context_length()));
        if !(2..=runner.context_length()).contains(&window) {
            let context = runner.context_length();
            return Err(format!("--window {window}: must be from 2 to the context length {context}").into());
        }
        let (mut sum, mut count) = (0.0, 0);
        for window in ids.chunks(window).filter(|window| window.len() > 1) {
            sum += negative_log_likelihood(&mut runner, window)?;
            count += window.len() - 1;
            eprint!("\r{count} of {} tokens: {:.4} ", ids.len(), (sum / count as f64).exp());
        }
        eprintln!();
        if count == 0 {
            return Err(format!("{text_file}: has fewer than two tokens").into());
        }
        Ok(writeln!(io::stdout(), "perplexity {:.6} over {count} tokens", (sum / count as f64).exp())?)
    })
}

/// Returns the sum of -ln p over all tokens of a window except the first.
fn negative_log_likelihood(runner: &mut Runner, window: &[u32]) -> Result<f64, Failure> {
    let scores = runner.score_ids(window, 1, 0)?;
    Ok(scores.iter().map(|score| -f64::from(score.token.logprob)).sum())
}
