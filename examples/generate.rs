//! A prompt in, a text out, piece by piece as it is made.

use std::{path::PathBuf, process::ExitCode};

use inkstone::Message;

mod common;
#[path = "common/model.rs"]
mod model;
#[path = "common/sampling.rs"]
mod sampling;

const STORYTELLER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/storyteller/storyteller.gguf");

const USAGE: &str = "
Usage: generate [OPTIONS] \"PROMPT\"

Goes on from a prompt. Where the model has a chat template, the prompt is put to it as a user's message.

  --model FILE       a GGUF file; without one, a small storyteller that comes with this crate
  --raw              the prompt as it stands, without the chat template
  --system TEXT      a system message for the chat template";

fn main() -> ExitCode {
    let usage =
        [USAGE, sampling::SAMPLING_OPTIONS, model::MODEL_OPTIONS, "  --help             prints this"].join("\n");
    common::run(&usage, |mut args| {
        let model = args.value::<PathBuf>("--model")?.unwrap_or_else(|| STORYTELLER.into());
        let raw = args.flag("--raw");
        let system: Option<String> = args.value("--system")?;
        let options = sampling::generate_options(&mut args)?;
        let builder = model::builder(&mut args)?;
        let prompt = args.positional()?.ok_or("a prompt is missing (see --help)")?;
        args.finish()?;
        let mut runner = builder.from_gguf(model)?;
        let template =
            if raw { Err("--raw was given".to_owned()) } else { runner.chat_template().map_err(|e| e.to_string()) };
        let mut generation = match template {
            Ok(_) => {
                let messages: Vec<_> = system.map(Message::system).into_iter().chain([Message::user(prompt)]).collect();
                runner.chat(&messages, &options)?
            }
            Err(why) if system.is_some() => return Err(format!("--system needs the chat template, but {why}").into()),
            Err(why) => {
                if !raw {
                    eprintln!("[the prompt is taken as it stands: {why}]");
                }
                runner.generate(&prompt, &options)?
            }
        };
        sampling::stream(&mut generation)?;
        Ok(())
    })
}
