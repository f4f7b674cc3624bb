//! Computes the logits or the greedy continuation of token ids, for comparison with other
//! implementations.

mod common;
#[path = "common/model.rs"]
mod model;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use common::Failure;

const USAGE: &str = "
Usage: logits --model FILE --ids 1,2,3 [--out FILE] [--greedy N] [OPTIONS]

Computes the logits after some token ids. Without --out and --greedy, prints the ten largest.

  --model FILE       a GGUF file, or a directory of safetensors
  --ids LIST         the ids, separated by commas
  --out FILE         writes the logits after the last id to FILE, as little-endian f32
  --greedy N         prints N ids of the greedy continuation on one line, including end-of-generation tokens
  --chunk N          maximum number of ids per step (256)
  --recompute        computes each step from all previous ids, without the cache";

fn main() -> ExitCode {
    let usage = [USAGE, model::MODEL_OPTIONS, "  --help             prints this help"].join("\n");
    common::run(&usage, |mut args| {
        let path: PathBuf = args.required("--model")?;
        let ids = parse_ids(&args.required::<String>("--ids")?)?;
        let out: Option<PathBuf> = args.value("--out")?;
        let greedy: Option<usize> = args.value("--greedy")?;
        let mut builder = model::builder(&mut args)?.recompute(args.flag("--recompute"));
        if let Some(chunk) = args.value("--chunk")? {
            builder = builder.prefill_chunk(chunk);
        }
        args.finish()?;
        let mut runner = builder.from_path(path)?;
        let mut logits = runner.predict_logits(&ids)?;
        if let Some(out) = &out {
            let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
            fs::write(out, bytes).map_err(|e| format!("{}: {e}", out.display()))?;
        }
        if let Some(n) = greedy {
            let mut continuation: Vec<String> = vec![];
            while continuation.len() < n {
                let id = largest(&logits);
                continuation.push(id.to_string());
                if continuation.len() < n {
                    logits.copy_from_slice(runner.decode(id)?);
                }
            }
            writeln!(io::stdout(), "{}", continuation.join(","))?;
        }
        if out.is_none() && greedy.is_none() {
            show_largest(&logits)?;
        }
        Ok(())
    })
}

fn parse_ids(list: &str) -> Result<Vec<u32>, Failure> {
    list.split(',').map(|id| id.trim().parse().map_err(|e| format!("--ids: `{id}`: {e}").into())).collect()
}

/// Returns the id of the largest logit; of equal logits, the lowest id.
fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best }) as u32
}

fn show_largest(logits: &[f32]) -> io::Result<()> {
    let mut order: Vec<_> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order.iter().take(10).try_for_each(|&id| writeln!(io::stdout(), "{id:>8} {:.5}", logits[id]))
}
