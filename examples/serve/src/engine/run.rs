//! Generates one answer on a thread.

use inkstone::{
    Error, GenerateOptions, Generation, Message, Prompt, Runner, StopHandle, Summary,
    chat::{AnswerEvent, ChatOptions, ToolCall},
    sampler::{Logprobs, TokenLogprob as LibraryLogprob},
    tokenizer::Tokenizer,
};

use super::{Counters, Ended, Event, Finish, Form, Input, Job, Piece, TokenLogprob};
use crate::{error::ApiError, id};

/// Generates the answer `choice` of a job, and sends its events.
pub fn run(
    runner: &mut Runner,
    job: &Job,
    choice: usize,
    stop: StopHandle,
    counters: &Counters,
    mut send: impl FnMut(Event),
) {
    let result = options_of(runner, job, choice).and_then(|options| match &job.input {
        Input::Chat { messages, chat, parallel_tool_calls } => {
            let answering = Answering { tokenizer: runner.tokenizer().clone(), parallel: *parallel_tool_calls, stop };
            answering.run(runner, messages, chat, &options, &mut send)
        }
        Input::Prompts(prompts) => {
            let prompt = &prompts[choice * prompts.len() / job.choices];
            continue_text(runner, prompt.clone(), &options, stop, &mut send)
        }
    });
    match result.map_err(|error| error.in_prompt(job.field)) {
        Ok(ended) => {
            counters.add(&ended.summary);
            send(Event::Ended(ended));
        }
        Err(error) => {
            counters.add_failure();
            send(Event::Failed(error));
        }
    }
}

/// Returns the options of an answer. Each answer to one request has a seed of its own.
fn options_of(runner: &Runner, job: &Job, choice: usize) -> Result<GenerateOptions, ApiError> {
    let mut options = job.options.clone();
    options.sampler.seed = options.sampler.seed.map(|seed| seed.wrapping_add(choice as u64));
    if let Some(Form { schema, field }) = &job.form {
        let grammar = runner.grammars().and_then(|grammars| grammars.json_schema(schema));
        options.grammar = Some(grammar.map_err(|error| ApiError::from(error).or_field(field))?);
    }
    Ok(options)
}

/// Answers a conversation.
struct Answering {
    tokenizer: Tokenizer,
    parallel: bool,
    stop: StopHandle,
}

impl Answering {
    fn run(
        &self,
        runner: &mut Runner,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
        send: &mut impl FnMut(Event),
    ) -> Result<Ended, ApiError> {
        let mut answer = runner.chat_with(messages, chat, options)?.with_stop_handle(self.stop.clone());
        send(Event::Started(answer.summary().prompt_tokens));
        let (mut tokens, mut reasoning_tokens, mut has_calls) = (0, 0, false);
        while let Some(event) = answer.events().next() {
            let generation = answer.generation();
            let before = std::mem::replace(&mut tokens, generation.ids().len());
            let piece = self.piece(event)?;
            match piece {
                Piece::Reasoning(_) => reasoning_tokens += tokens - before,
                Piece::Call(_) => has_calls = true,
                Piece::Text(_) => {}
            }
            let logprobs = generation.logprobs().get(before..).unwrap_or_default();
            send(Event::Piece(piece, logprobs.iter().filter_map(|token| self.logprob(token)).collect()));
            if has_calls && !self.parallel {
                break;
            }
        }
        Ok(ended(answer.summary(), has_calls, reasoning_tokens))
    }

    /// Returns the piece of an event. A call with wrong arguments is passed on, since the client
    /// can tell the model; a call that cannot be parsed is text.
    fn piece(&self, event: Result<AnswerEvent, Error>) -> Result<Piece, ApiError> {
        Ok(match event {
            Ok(AnswerEvent::Reasoning(text)) => Piece::Reasoning(text),
            Ok(AnswerEvent::Text(text)) => Piece::Text(text),
            Ok(AnswerEvent::ToolCall(call)) => Piece::Call(with_id(call)),
            Err(Error::ToolCall { call: Some(call), .. }) => Piece::Call(with_id(*call)),
            Err(Error::ToolCall { text, call: None, .. }) => Piece::Text(text),
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(ApiError::internal("the library has an event that the server does not know")),
        })
    }

    /// Returns the log-probability of a token, unless it is a mark that is not part of the text.
    fn logprob(&self, logprobs: &Logprobs) -> Option<TokenLogprob> {
        let is_mark = self.tokenizer.control_tokens().any(|(id, _)| id == logprobs.token.id);
        (!is_mark).then(|| logprob_of(&self.tokenizer, logprobs, None))
    }
}

/// Continues a text.
fn continue_text(
    runner: &mut Runner,
    prompt: Prompt<'static>,
    options: &GenerateOptions,
    stop: StopHandle,
    send: &mut impl FnMut(Event),
) -> Result<Ended, ApiError> {
    let tokenizer = runner.tokenizer().clone();
    let mut generation = runner.generate(prompt, options)?.with_stop_handle(stop);
    send(Event::Started(generation.summary().prompt_tokens));
    if options.logprobs.is_some() {
        send_tokens(&mut generation, &tokenizer, send)?;
    } else {
        for text in generation.by_ref() {
            send(Event::Piece(Piece::Text(text?), vec![]));
        }
    }
    Ok(ended(generation.summary(), false, 0))
}

fn send_tokens(
    generation: &mut Generation<'_>,
    tokenizer: &Tokenizer,
    send: &mut impl FnMut(Event),
) -> Result<(), ApiError> {
    for token in generation.tokens() {
        let token = token?;
        let logprobs = token.logprobs.iter().map(|logprobs| logprob_of(tokenizer, logprobs, Some(&token.text)));
        let logprobs = logprobs.collect();
        send(Event::Piece(Piece::Text(token.text), logprobs));
    }
    Ok(())
}

fn ended(summary: &Summary, has_calls: bool, reasoning_tokens: usize) -> Ended {
    Ended { finish: Finish::new(&summary.stop, has_calls), summary: summary.clone(), reasoning_tokens }
}

fn with_id(call: ToolCall) -> ToolCall {
    if call.id.is_some() { call } else { call.with_id(id::unique("call_")) }
}

fn logprob_of(tokenizer: &Tokenizer, logprobs: &Logprobs, text: Option<&str>) -> TokenLogprob {
    let of = |token: &LibraryLogprob, text: Option<&str>, top| {
        let bytes = tokenizer.token_bytes(token.id).unwrap_or_default().to_vec();
        let text = text.map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), str::to_owned);
        // JSON has no infinity.
        TokenLogprob { bytes, text, logprob: token.logprob.max(f32::MIN), top }
    };
    let top = logprobs.top.iter().map(|token| of(token, None, vec![])).collect();
    of(&logprobs.token, text, top)
}
