//! Generates text from a prompt, and prints it while it is generated.

mod common;
#[path = "common/model.rs"]
mod model;
#[path = "common/sampling.rs"]
mod sampling;
#[path = "common/storyteller.rs"]
mod storyteller;
#[path = "common/template.rs"]
mod template;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use inkstone::Message;

/// Default prompt for the storyteller.
const STORY: &str = "Tell me a story about a fox and a lantern";

const USAGE: &str = "
Usage: generate [OPTIONS] [\"PROMPT\"]

Generates text from a prompt; the prompt `-` is read from standard input. If the model has a chat template, the prompt
is sent as a user message.

  --model FILE       a GGUF file, or a directory of safetensors (default: the small storyteller model in this
                     repository)
  --raw              uses the prompt without the chat template
  --system TEXT      a system message for the chat template";

fn main() -> ExitCode {
    let options = [USAGE, template::TEMPLATE_OPTION, sampling::SAMPLING_OPTIONS, model::MODEL_OPTIONS];
    let usage = options.join("\n") + "\n  --help             prints this help";
    common::run(&usage, |mut args| {
        let model: Option<PathBuf> = args.value("--model")?;
        let raw = args.flag("--raw");
        let system: Option<String> = args.value("--system")?;
        let options = sampling::generate_options(&mut args)?;
        let builder = sampling::with_draft(model::builder(&mut args)?, &mut args)?;
        let builder = match template::source(&mut args)? {
            Some(_) if raw => return Err("--raw ignores chat templates: pass either --raw or --template".into()),
            Some(source) => builder.chat_template(source),
            None => builder,
        };
        let prompt = match args.positional()? {
            Some(prompt) if prompt == "-" => {
                io::read_to_string(io::stdin()).map_err(|e| format!("standard input: {e}"))?
            }
            Some(prompt) => prompt,
            None if model.is_none() => STORY.to_owned(),
            None => return Err("a prompt is missing (see --help)".into()),
        };
        args.finish()?;
        let mut runner = builder.from_path(model.unwrap_or_else(storyteller::path))?;
        let chat_template =
            if raw { Err("--raw was given".to_owned()) } else { runner.chat_template().map_err(|e| e.to_string()) };
        match chat_template {
            Ok(_) => {
                let messages: Vec<_> = system.map(Message::system).into_iter().chain([Message::user(prompt)]).collect();
                let mut answer = runner.chat(&messages, &options)?;
                stream(&mut answer)?;
                sampling::report(answer.summary());
            }
            Err(why) if system.is_some() => return Err(format!("--system needs the chat template, but {why}").into()),
            Err(why) => {
                if !raw {
                    eprintln!("[using the prompt without a chat template: {why}]");
                }
                let mut generation = runner.generate(&prompt, &options)?;
                stream(&mut generation)?;
                sampling::report(generation.summary());
            }
        }
        Ok(())
    })
}

/// Prints a text while it is generated.
fn stream(pieces: impl Iterator<Item = inkstone::Result<String>>) -> Result<(), common::Failure> {
    let mut out = io::stdout().lock();
    for piece in pieces {
        out.write_all(piece?.as_bytes())?;
        out.flush()?;
    }
    Ok(writeln!(out)?)
}
