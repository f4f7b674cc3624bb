//! Continues a text from run to run, in a session that a file keeps.

mod common;
#[path = "common/model.rs"]
mod model;
#[path = "common/sampling.rs"]
mod sampling;
#[path = "common/storyteller.rs"]
mod storyteller;

use std::{
    fs::{self, File},
    io::{self, BufReader, ErrorKind, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use inkstone::Runner;

/// Default beginning of a text.
const STORY: &str = "Once upon a time";

const USAGE: &str = "
Usage: session [OPTIONS] --file FILE [TEXT]

Restores a session from a file if there is one, appends TEXT, continues it, and saves the session in the file.

  --file FILE        the session's file
  --model FILE       a GGUF file, or a directory of safetensors (default: the small storyteller model in this
                     repository)
  --tokens-alone     saves the tokens, and not what the model has computed for them
  --each             saves after each token, not only in the end";

fn main() -> ExitCode {
    let usage = [USAGE, sampling::SAMPLING_OPTIONS, model::MODEL_OPTIONS].join("\n")
        + "\n  --help             prints this help";
    common::run(&usage, |mut args| {
        let file: Option<PathBuf> = args.value("--file")?;
        let file = file.ok_or("--file is missing (see --help)")?;
        let model: Option<PathBuf> = args.value("--model")?;
        let (tokens_alone, each) = (args.flag("--tokens-alone"), args.flag("--each"));
        let options = sampling::generate_options(&mut args)?;
        let builder = sampling::with_draft(model::builder(&mut args)?, &mut args)?;
        let text = args.positional()?;
        args.finish()?;
        let mut runner = builder.from_path(model.unwrap_or_else(storyteller::path))?;
        let is_new = !restore(&mut runner, &file)?;
        let mut ids = runner.tokens().to_vec();
        let text = if is_new { text.unwrap_or_else(|| STORY.to_owned()) } else { text.unwrap_or_default() };
        let tokenizer = runner.tokenizer();
        ids.extend(if is_new { tokenizer.encode_prompt(&text)? } else { tokenizer.encode_continuation(&text)? });
        let mut out = io::stdout().lock();
        let steps = if each { options.max_tokens.unwrap_or(100) } else { 1 };
        for _ in 0..steps {
            let mut options = options.clone();
            options.max_tokens = if each { Some(1) } else { options.max_tokens };
            let mut generation = runner.generate(&ids, &options)?;
            for piece in &mut generation {
                out.write_all(piece?.as_bytes())?;
                out.flush()?;
            }
            if !each {
                sampling::report(generation.summary());
            }
            ids.extend_from_slice(generation.ids());
            // No step has computed the last token yet, unless the text has ended.
            let len = runner.tokens().len();
            if len < ids.len() {
                runner.prefill(&ids[len..])?;
            }
            save(&mut runner, &file, tokens_alone)?;
        }
        Ok(writeln!(out)?)
    })
}

/// Restores a session from a file, and returns whether there is one.
fn restore(runner: &mut Runner, file: &Path) -> Result<bool, common::Failure> {
    match File::open(file) {
        Ok(session) => runner.restore(BufReader::new(session))?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(format!("{}: {error}", file.display()).into()),
    }
    Ok(true)
}

/// Saves a session to a file beside `file`, which then takes its place. If the process ends
/// meanwhile, `file` is still whole.
fn save(runner: &mut Runner, file: &Path, tokens_alone: bool) -> Result<(), common::Failure> {
    let beside = file.with_extension("new");
    let failed = |error: io::Error| format!("{}: {error}", beside.display());
    let mut session = File::create(&beside).map_err(failed)?;
    if tokens_alone {
        runner.save_tokens(&mut session)?;
    } else {
        runner.save(&mut session)?;
    }
    session.sync_all().map_err(failed)?;
    fs::rename(&beside, file).map_err(failed)?;
    Ok(())
}
