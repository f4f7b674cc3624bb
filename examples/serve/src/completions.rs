//! The completions API: `/v1/completions`.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use inkstone::Prompt;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    app::App,
    body::{self, TextOr},
    chat::StreamOptions,
    engine::{Answer, Ended, Event, Input, Job, Piece, TokenLogprob},
    error::ApiError,
    id, limits,
    openai::{
        output::{Usage, finish_reason},
        sampling::Sampling,
    },
    sse::{self, Encoder, Message},
};

/// A request. Fields with an underscore are checked and have no effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionRequest {
    model: String,
    prompt: TextOr<PromptItem>,
    best_of: Option<usize>,
    cache_salt: Option<String>,
    #[serde(default)]
    echo: bool,
    frequency_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<String, f32>>,
    logprobs: Option<usize>,
    max_tokens: Option<usize>,
    min_p: Option<f32>,
    n: Option<usize>,
    presence_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<TextOr<String>>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    #[serde(rename = "user")]
    _user: Option<String>,
}

/// A part of a prompt that is a list: a text, a token id, or a list of ids.
#[derive(Deserialize)]
#[serde(untagged)]
enum PromptItem {
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
}

/// A request that has been checked.
struct CompletionCall {
    job: Job,
    stream: bool,
    include_usage: bool,
    /// Number of answers to each prompt.
    n: usize,
}

/// The number of tokens that OpenAI's API generates by default.
const DEFAULT_MAX_TOKENS: usize = 16;

impl CompletionRequest {
    fn into_call(self, app: &App) -> Result<CompletionCall, ApiError> {
        app.check_model(&self.model)?;
        let n = self.n.unwrap_or(1);
        if self.echo {
            return Err(ApiError::field("echo", "is not supported: leave it out"));
        }
        if self.best_of.is_some_and(|best_of| best_of != n) {
            return Err(ApiError::field("best_of", "is not supported: leave it out"));
        }
        StreamOptions::check(self.stream_options.as_ref(), self.stream)?;
        let prompts = prompts(self.prompt)?;
        let choices = n.saturating_mul(prompts.len());
        if !(1..=limits::CHOICES).contains(&choices) {
            return Err(ApiError::field("n", &format!("with all prompts, must be from 1 to {}", limits::CHOICES)));
        }
        let sampling = Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            logit_bias: self.logit_bias,
            seed: self.seed,
            cache_salt: self.cache_salt,
            stop: self.stop,
            max_tokens: Some((self.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS), "max_tokens")),
            logprobs: self.logprobs.map(|top| (top, "logprobs")),
        };
        let include_usage = self.stream_options.is_some_and(|options| options.include_usage);
        let job =
            Job { input: Input::Prompts(prompts), field: "prompt", options: sampling.options()?, form: None, choices };
        Ok(CompletionCall { job, stream: self.stream, include_usage, n })
    }
}

fn prompts(prompt: TextOr<PromptItem>) -> Result<Vec<Prompt<'static>>, ApiError> {
    let items = match prompt {
        TextOr::Text(text) => return Ok(vec![text.into()]),
        TextOr::List(items) => items,
    };
    if items.is_empty() {
        return Err(ApiError::field("prompt", "must not be empty"));
    }
    let ids = items.iter().map(|item| match item {
        PromptItem::Id(id) => Some(*id),
        PromptItem::Text(_) | PromptItem::Ids(_) => None,
    });
    if let Some(ids) = ids.collect::<Option<Vec<_>>>() {
        return Ok(vec![ids.into()]);
    }
    let prompts = items.into_iter().map(|item| match item {
        PromptItem::Text(text) => Ok(text.into()),
        PromptItem::Ids(ids) => Ok(ids.into()),
        PromptItem::Id(_) => Err(ApiError::field("prompt", "has ids between other prompts")),
    });
    prompts.collect()
}

/// Continues texts.
pub async fn create(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let (call, admission) = body::read(&app, request, CompletionRequest::into_call).await?;
    let CompletionCall { job, stream, include_usage, n } = call;
    let writer = CompletionWriter {
        id: id::unique("cmpl-"),
        created: id::now(),
        model: app.name.clone(),
        logprobs: job.options.logprobs.is_some(),
        include_usage,
        n,
        usage: Usage::default(),
        offsets: vec![0; job.choices],
        failed: false,
    };
    let mut reply = app.engine.start(job, admission);
    if stream {
        let first = reply.first().await?;
        return Ok(sse::respond(first, reply, writer));
    }
    let answers = reply.answers().await?;
    Ok(Json(writer.completion(&answers)).into_response())
}

/// Writes a response, or the chunks of a stream.
struct CompletionWriter {
    id: String,
    created: u64,
    model: String,
    logprobs: bool,
    include_usage: bool,
    n: usize,
    usage: Usage,
    /// Number of characters of each text so far.
    offsets: Vec<usize>,
    failed: bool,
}

impl CompletionWriter {
    fn completion(mut self, answers: &[(Answer, Ended)]) -> Value {
        let mut choices = vec![];
        for (index, (answer, ended)) in answers.iter().enumerate() {
            self.count(index, ended);
            choices.push(self.choice(index, &answer.text, &answer.tokens, Some(finish_reason(&ended.finish))));
        }
        let mut response = self.response(choices);
        response["usage"] = self.usage.chat();
        response
    }

    fn count(&mut self, choice: usize, ended: &Ended) {
        if choice.is_multiple_of(self.n) { self.usage.add(ended) } else { self.usage.add_answer(ended) }
    }

    fn choice(&mut self, index: usize, text: &str, tokens: &[TokenLogprob], finish: Option<&str>) -> Value {
        let logprobs = self.logprobs.then(|| self.logprobs(index, tokens));
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish})
    }

    /// Returns the log-probabilities of tokens, with the offsets of their texts in characters.
    fn logprobs(&mut self, index: usize, tokens: &[TokenLogprob]) -> Value {
        let mut offsets = vec![];
        for token in tokens {
            offsets.push(self.offsets[index]);
            self.offsets[index] += token.text.chars().count();
        }
        let top = |token: &TokenLogprob| {
            token.top.iter().map(|top| (top.text.clone(), top.logprob.into())).collect::<Map<_, _>>()
        };
        json!({
            "tokens": tokens.iter().map(|token| &token.text).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(|token| token.logprob).collect::<Vec<_>>(),
            "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }

    fn response(&self, choices: Vec<Value>) -> Value {
        let Self { id, created, model, .. } = self;
        json!({"id": id, "object": "text_completion", "created": created, "model": model, "choices": choices})
    }
}

impl Encoder for CompletionWriter {
    fn encode(&mut self, choice: usize, event: Event) -> Vec<Message> {
        let choice = match event {
            Event::Started(_) | Event::Piece(Piece::Reasoning(_) | Piece::Call(_), _) => return vec![],
            Event::Piece(Piece::Text(text), tokens) => self.choice(choice, &text, &tokens, None),
            Event::Ended(ended) => {
                self.count(choice, &ended);
                self.choice(choice, "", &[], Some(finish_reason(&ended.finish)))
            }
            Event::Failed(error) => {
                self.failed = true;
                return vec![Message::Data(error.openai())];
            }
        };
        vec![Message::Data(self.response(vec![choice]))]
    }

    fn finish(&mut self) -> Vec<Message> {
        if self.failed {
            return vec![];
        }
        let usage = self.include_usage.then(|| {
            let mut chunk = self.response(vec![]);
            chunk["usage"] = self.usage.chat();
            Message::Data(chunk)
        });
        usage.into_iter().chain([Message::Done]).collect()
    }
}
