//! Computes the logits or the greedy continuation of token ids, for comparison with other
//! implementations.

mod common;
#[path = "common/model.rs"]
mod model;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use common::{Args, Failure};
use inkstone::{
    GenerateOptions, Image, LogitsFor, Runner, SamplerOptions, Speculation, SpeculationSummary, image::Alpha,
    internals::image::Convention,
};

const USAGE: &str = "
Usage: logits --model FILE --ids 1,2,3 [--out FILE] [--greedy N] [OPTIONS]
       logits --model FILE --mmproj FILE --image FILES --prompt TEXT [--out FILE] [--greedy N] [OPTIONS]

Computes the logits after some token ids, or after a prompt with images. Without --out and --greedy, prints the ten
largest.

  --model FILE       a GGUF file, or a directory of safetensors
  --ids LIST         the ids, separated by commas
  --mmproj FILE      the file of the vision encoder
  --image FILES      the images, separated by commas
  --prompt TEXT      the prompt, with <__media__> in the place of each image
  --resize WAY       stretch: images as in transformers; letterbox: as in llama.cpp (stretch)
  --embeddings FILE  writes the rows of all images to FILE, as little-endian f32
  --out FILE         writes the logits after the last id to FILE, as little-endian f32
  --greedy N         prints N ids of the greedy continuation on one line, including end-of-generation tokens
  --speculate K      with --greedy, drafts K tokens in each step, and prints a line of JSON with the accepted drafts
  --draft WHAT       drafts by the model in this file, or from repetitions in the text: ngram; without it, the model's
                     own head drafts
  --mtp-out FILE     writes the logits of the model's head for multi-token prediction, after each id but the last, to
                     FILE, as little-endian f32
  --chunk N          maximum number of ids per step (256)
  --recompute        computes each step from all previous ids, without the cache";

fn main() -> ExitCode {
    let usage = [USAGE, model::MODEL_OPTIONS, "  --help             prints this help"].join("\n");
    common::run(&usage, |mut args| {
        let path: PathBuf = args.required("--model")?;
        let input = Input::parse(&mut args)?;
        let embeddings: Option<PathBuf> = args.value("--embeddings")?;
        let out: Option<PathBuf> = args.value("--out")?;
        let greedy: Option<usize> = args.value("--greedy")?;
        let speculate: Option<usize> = args.value("--speculate")?;
        let draft: Option<String> = args.value("--draft")?;
        let mtp_out: Option<PathBuf> = args.value("--mtp-out")?;
        let mut builder = model::builder(&mut args)?.recompute(args.flag("--recompute"));
        if let Some(chunk) = args.value("--chunk")? {
            builder = builder.prefill_chunk(chunk);
        }
        args.finish()?;
        builder = match (speculate, draft.as_deref()) {
            (None, Some(_)) => return Err("--draft needs --speculate".into()),
            (Some(_), _) if greedy.is_none() => return Err("--speculate needs --greedy".into()),
            (Some(_), _) if matches!(input, Input::Images { .. }) => return Err("--speculate needs --ids".into()),
            (None, None) => builder,
            (Some(_), None) => builder.without_ngrams(),
            (_, Some("ngram")) => builder.without_mtp(),
            (_, Some(path)) => builder.draft(path).without_ngrams().without_mtp(),
        };
        if let Input::Images { mmproj, convention, .. } = &input {
            builder = builder.vision(mmproj).vision_convention(*convention);
        }
        let mut runner = builder.from_path(path)?;
        let mut logits = match &input {
            Input::Ids(ids) => runner.predict_logits(ids)?,
            Input::Images { prompt, images, .. } => {
                if let Some(embeddings) = &embeddings {
                    write_floats(embeddings, &runner.image_embeddings(images)?)?;
                }
                runner.prefill_images(prompt, images)?.to_vec()
            }
        };
        if let Some(out) = &out {
            write_floats(out, &logits)?;
        }
        match (&mtp_out, &input) {
            (Some(out), Input::Ids(ids)) => write_floats(out, &mtp_logits(&mut runner, ids)?)?,
            (Some(_), Input::Images { .. }) => return Err("--mtp-out needs --ids".into()),
            (None, _) => {}
        }
        if let (Some(n), Some(drafts), Input::Ids(ids)) = (greedy, speculate, &input) {
            return speculation(&mut runner, ids, n, drafts);
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
        if out.is_none() && greedy.is_none() && mtp_out.is_none() {
            show_largest(&logits)?;
        }
        Ok(())
    })
}

/// Returns the logits of the head for multi-token prediction, `[ids - 1, vocabulary]`.
fn mtp_logits(runner: &mut Runner, ids: &[u32]) -> inkstone::Result<Vec<f32>> {
    let decoder = runner.decoder_mut();
    let sequence = decoder.open();
    let mut logits = vec![];
    for pair in ids.windows(2) {
        decoder.step(&[(sequence, &pair[..1], LogitsFor::None)])?;
        logits.extend(decoder.mtp_logits(sequence, pair[1])?);
    }
    decoder.close(sequence)?;
    Ok(logits)
}

/// Prints `n` ids of the greedy continuation with drafts, and the number of accepted ones.
fn speculation(runner: &mut Runner, ids: &[u32], n: usize, drafts: usize) -> Result<(), Failure> {
    let options = GenerateOptions {
        sampler: SamplerOptions::greedy(),
        max_tokens: Some(n),
        speculation: Speculation::Exactly(drafts),
        ..Default::default()
    };
    let mut generation = runner.generate(ids, &options)?.past_the_end();
    generation.by_ref().try_for_each(|piece| piece.map(drop))?;
    let continuation: Vec<_> = generation.ids().iter().map(u32::to_string).collect();
    let SpeculationSummary { drafted, accepted, .. } = &generation.summary().speculation;
    let per_step = generation.accepted_per_step();
    writeln!(
        io::stdout(),
        "{}\n{{\"steps\":{},\"drafted\":{drafted},\"accepted\":{accepted},\"accepted_per_step\":{per_step:?}}}",
        continuation.join(","),
        per_step.len(),
    )?;
    Ok(())
}

/// The tokens whose logits are computed.
enum Input {
    Ids(Vec<u32>),
    Images { mmproj: PathBuf, convention: Convention, prompt: String, images: Vec<Image> },
}

impl Input {
    fn parse(args: &mut Args) -> Result<Self, Failure> {
        let Some(mmproj) = args.value("--mmproj")? else {
            return Ok(Self::Ids(parse_ids(&args.required::<String>("--ids")?)?));
        };
        let convention = match args.value::<String>("--resize")?.as_deref() {
            None | Some("stretch") => Convention::Transformers,
            Some("letterbox") => Convention::LlamaCpp,
            Some(other) => return Err(format!("--resize: `{other}` is neither stretch nor letterbox").into()),
        };
        // As transformers and llama.cpp do.
        let alpha = Alpha::Drop;
        let paths: String = args.required("--image")?;
        let images = paths.split(',').map(|path| Image::options().alpha(alpha).open(path));
        let prompt = args.required("--prompt")?;
        Ok(Self::Images { mmproj, convention, prompt, images: images.collect::<inkstone::Result<_>>()? })
    }
}

fn write_floats(path: &Path, floats: &[f32]) -> Result<(), Failure> {
    let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()).into())
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
