//! Encodes texts to token ids.

mod common;

use std::{
    io::{BufRead, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
};

use inkstone::{
    internals::models,
    tokenizer::{SpecialTokens, Tokenizer},
};

const USAGE: &str = "
Usage: tokenize --model FILE [--special]

Reads one JSON string per line and writes the array of its token ids, one per line.

  --model FILE  a GGUF file, a directory of safetensors, or a tokenizer.json of Hugging Face
  --special     encodes special tokens in the text as such, instead of as text
  --help        prints this help";

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        let path: PathBuf = args.required("--model")?;
        let special = if args.flag("--special") { SpecialTokens::Parse } else { SpecialTokens::Plain };
        args.finish()?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let tokenizer =
            if is_json { Tokenizer::from_file(&path)? } else { Tokenizer::from_gguf(&models::open(&path)?)? };
        let mut out = BufWriter::new(std::io::stdout().lock());
        for (index, line) in std::io::stdin().lock().lines().enumerate() {
            let number = index + 1;
            let text: String = serde_json::from_str(&line.map_err(|e| format!("line {number}: {e}"))?)
                .map_err(|e| format!("line {number} is not a JSON string: {e}"))?;
            let ids = tokenizer.encode(&text, special).map_err(|e| format!("line {number}: {e}"))?;
            writeln!(out, "{}", serde_json::to_string(&ids)?)?;
        }
        Ok(out.flush()?)
    })
}
