//! Answers a question about a picture, and prints the answer while it is generated.

mod common;
#[path = "common/model.rs"]
mod model;
#[path = "common/sampling.rs"]
mod sampling;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use common::Failure;
use inkstone::{Image, Message};

/// Default question.
const QUESTION: &str = "What is in the picture?";

const USAGE: &str = "
Usage: describe [OPTIONS] [\"QUESTION\"]

Answers a question about a picture. Without --model, a small model in this repository answers, which knows coloured
shapes only.

  --image FILE       a PNG, JPEG, WebP or GIF file (default: a picture in this repository)
  --model FILE       a GGUF file of a model that sees
  --mmproj FILE      the file of its vision encoder (default: the file mmproj*.gguf beside the model)";

fn main() -> ExitCode {
    let options = [USAGE, sampling::SAMPLING_OPTIONS, model::MODEL_OPTIONS];
    let usage = options.join("\n") + "\n  --help             prints this help";
    common::run(&usage, |mut args| {
        let image: Option<PathBuf> = args.value("--image")?;
        let model: Option<PathBuf> = args.value("--model")?;
        let mmproj: Option<PathBuf> = args.value("--mmproj")?;
        let options = sampling::generate_options(&mut args)?;
        let builder = sampling::with_draft(model::builder(&mut args)?, &mut args)?;
        let question = args.positional()?.unwrap_or_else(|| QUESTION.to_owned());
        args.finish()?;
        let builder = match mmproj {
            Some(path) => builder.vision(path),
            None => builder,
        };
        let image = Image::open(or_seer(image, "picture.png")?)?;
        let mut runner = builder.from_path(or_seer(model, "seer.gguf")?)?;
        let mut answer = runner.chat(&[Message::user([image.into(), question.into()])], &options)?;
        let mut out = io::stdout().lock();
        for piece in &mut answer {
            out.write_all(piece?.as_bytes())?;
            out.flush()?;
        }
        writeln!(out)?;
        sampling::report(answer.summary());
        Ok(())
    })
}

/// Returns the given path, or the path of a file of the repository's model that sees.
fn or_seer(given: Option<PathBuf>, name: &str) -> Result<PathBuf, Failure> {
    let path = given.unwrap_or_else(|| [env!("CARGO_MANIFEST_DIR"), "tests", "data", "seer", name].iter().collect());
    if path.exists() {
        return Ok(path);
    }
    let what = "does not exist; the model that sees is in the repository of this crate, not in its package: pass \
                --model and --image";
    Err(format!("{}: {what}", path.display()).into())
}
