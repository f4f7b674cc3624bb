//! Runs a conversation in the terminal.

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
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use inkstone::{
    Answer, Image, Message,
    chat::{AnswerEvent, ChatOptions},
};

const USAGE: &str = "
Usage: chat [OPTIONS]

Reads messages from standard input, one per line, and prints the answers. Reasoning is printed to standard error.
`/image FILE` puts an image before the next message, for models that see; `/new` starts a new conversation; `/quit` or the
end of input ends the program.

  --model FILE       a GGUF file, or a directory of safetensors, with a chat template (default: the small storyteller
                     model in this repository)
  --mmproj FILE      the vision encoder (the file mmproj*.gguf beside the model)
  --system TEXT      a system message with instructions for the model
  --no-thinking      disables reasoning, if the chat template supports it (such as Qwen3's)";

fn main() -> ExitCode {
    let options = [USAGE, template::TEMPLATE_OPTION, sampling::SAMPLING_OPTIONS, model::MODEL_OPTIONS];
    let usage = options.join("\n") + "\n  --help             prints this help";
    common::run(&usage, |mut args| {
        let path = args.value("--model")?.unwrap_or_else(storyteller::path);
        let system: Vec<_> = args.value::<String>("--system")?.into_iter().map(Message::system).collect();
        let no_thinking = args.flag("--no-thinking");
        let options = sampling::generate_options(&mut args)?;
        let builder = sampling::with_draft(model::builder(&mut args)?, &mut args)?;
        let mmproj: Option<PathBuf> = args.value("--mmproj")?;
        let builder = mmproj.into_iter().fold(builder, |builder, mmproj| builder.vision(mmproj));
        let builder = match template::source(&mut args)? {
            Some(source) => builder.chat_template(source),
            None => builder,
        };
        args.finish()?;
        let mut runner = builder.from_path(path)?;
        runner.chat_template()?;
        let chat = ChatOptions::default();
        let chat = if no_thinking { chat.enable_thinking(false) } else { chat };
        let mut messages = system.clone();
        let mut images = vec![];
        while let Some(line) = read_line()? {
            match line.trim() {
                "" => continue,
                "/quit" => break,
                "/new" => {
                    messages.clone_from(&system);
                    images.clear();
                }
                line if line.starts_with("/image ") => match Image::open(line["/image ".len()..].trim()) {
                    Ok(image) => images.push(image),
                    Err(error) => eprintln!("error: {error}"),
                },
                text => {
                    messages.push(match images.is_empty() {
                        true => Message::user(text),
                        false => images.drain(..).fold(Message::user(""), Message::image).text(text),
                    });
                    let answer = runner.chat_with(&messages, &chat, &options).map_err(Into::into);
                    match answer.and_then(show) {
                        Ok(answer) => messages.push(answer),
                        Err(error) => {
                            eprintln!("error: {error}");
                            messages.pop();
                        }
                    }
                }
            }
        }
        Ok(())
    })
}

/// Prints an answer while it is generated, and returns it.
fn show(mut answer: Answer) -> Result<Message, common::Failure> {
    let (mut out, mut log) = (io::stdout().lock(), io::stderr().lock());
    for event in answer.events() {
        match event? {
            AnswerEvent::Reasoning(text) => log.write_all(text.as_bytes())?,
            AnswerEvent::Text(text) => out.write_all(text.as_bytes())?,
            other => writeln!(log, "{other:?}")?,
        }
        out.flush()?;
    }
    writeln!(out)?;
    drop(log);
    sampling::report(answer.summary());
    Ok(answer.message())
}

/// Reads the next line of input. Returns `None` at the end of input.
fn read_line() -> io::Result<Option<String>> {
    if io::stdin().is_terminal() {
        print!("> ");
        io::stdout().flush()?;
    }
    let mut line = String::new();
    Ok((io::stdin().read_line(&mut line)? > 0).then_some(line))
}
