//! Serves a language model over HTTP, with the APIs of OpenAI and Anthropic, and a page to chat.

mod app;
mod body;
mod chat;
#[path = "../../common/mod.rs"]
mod common;
mod completions;
mod embeddings;
mod engine;
mod error;
mod health;
mod id;
mod limits;
mod messages;
#[path = "../../common/model.rs"]
mod model;
mod models;
mod openai;
mod responses;
mod serve;
mod sse;
#[path = "../../common/template.rs"]
mod template;
#[cfg(test)]
mod tests;
mod tokenize;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use self::{
    app::{Access, App},
    common::Args,
    engine::Engine,
};

const USAGE: &str = "
Usage: inkstone-serve [OPTIONS]

Serves a model over HTTP, with the APIs of OpenAI and Anthropic, and a page to chat at `/`. On SIGTERM it finishes the
answers that it has begun, and ends.

  --model FILE       a GGUF file, or a directory of safetensors (default: the small storyteller model in this repository)
  --mmproj FILE      the vision encoder (the file mmproj*.gguf beside the model)
  --draft FILE       a smaller model with the same vocabulary, which drafts tokens; the text stays the same
  --name NAME        the name of the model for clients (the name of its file)
  --host ADDRESS     the address to listen on (127.0.0.1)
  --port P           the port to listen on; 0 for any (8080)
  --api-key K        the key that clients have to send (none)
  --parallel N       number of answers that are generated at a time (8)
  --queue N          number of requests that may wait (64)
  --drain SECONDS    time for the answers that have begun when the server ends (30)";

/// The options that are not about the model.
struct Options {
    address: SocketAddr,
    name: String,
    access: Access,
    parallel: usize,
    queue: usize,
    drain: Duration,
}

fn main() -> ExitCode {
    let usage =
        [USAGE, template::TEMPLATE_OPTION, model::MODEL_OPTIONS].join("\n") + "\n  --help             prints this help";
    common::run(&usage, |mut args| {
        let path = args.value::<PathBuf>("--model")?.unwrap_or_else(storyteller);
        let options = options(&mut args, &path)?;
        let mut builder = model::builder(&mut args)?;
        if let Some(mmproj) = args.value::<PathBuf>("--mmproj")? {
            builder = builder.vision(mmproj);
        }
        if let Some(draft) = args.value::<PathBuf>("--draft")? {
            builder = builder.draft(draft);
        }
        if let Some(source) = template::source(&mut args)? {
            builder = builder.chat_template(source);
        }
        args.finish()?;
        let engine = Engine::new(builder.from_path(path)?, options.parallel, options.queue);
        let app = App::new(engine, options.name, options.access);
        serve::run(app, options.address, options.drain)
    })
}

fn options(args: &mut Args, model: &Path) -> Result<Options, common::Failure> {
    let host = args.value("--host")?.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let parallel = args.value("--parallel")?.unwrap_or(8);
    if parallel == 0 {
        return Err("--parallel 0: must be at least 1".into());
    }
    let stem = || model.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy().into_owned());
    Ok(Options {
        address: SocketAddr::new(host, args.value("--port")?.unwrap_or(8080)),
        name: args.value("--name")?.unwrap_or_else(stem),
        access: match args.value("--api-key")? {
            Some(key) => Access::Key(key),
            None if host.is_loopback() => Access::Local,
            None => Access::Open,
        },
        parallel,
        queue: args.value("--queue")?.unwrap_or(64),
        drain: Duration::from_secs(args.value("--drain")?.unwrap_or(30)),
    })
}

/// Returns the path of the small model in this repository.
fn storyteller() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/storyteller/storyteller.gguf").into()
}
