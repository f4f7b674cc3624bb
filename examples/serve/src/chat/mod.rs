//! The chat API: `/v1/chat/completions`.

mod message;
mod request;
mod stream;

use axum::{
    Json,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

pub use self::{
    message::{check, content_of},
    request::StreamOptions,
};
use self::{request::ChatRequest, stream::ChatStream};
use crate::{
    app::App,
    body,
    engine::{Answer, Ended, Job},
    error::ApiError,
    id,
    openai::output::{Usage, finish_reason, logprobs},
    sse,
};

/// A request that has been checked.
struct ChatCall {
    job: Job,
    /// Whether the answer is streamed.
    stream: bool,
    /// Whether the stream ends with counts of tokens.
    include_usage: bool,
}

/// The fields that all parts of an answer have.
struct Head {
    id: String,
    created: u64,
    model: String,
    /// Whether log-probabilities are asked for.
    logprobs: bool,
}

/// Answers a conversation.
pub async fn create(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let (call, admission) = body::read(&app, request, ChatRequest::into_call).await?;
    let ChatCall { job, stream, include_usage } = call;
    let head = Head {
        id: id::unique("chatcmpl-"),
        created: id::now(),
        model: app.name.clone(),
        logprobs: job.options.logprobs.is_some(),
    };
    let choices = job.choices;
    let mut reply = app.engine.start(job, admission);
    if stream {
        let first = reply.first().await?;
        return Ok(sse::respond(first, reply, ChatStream::new(head, choices, include_usage)));
    }
    let answers = reply.answers().await?;
    Ok(Json(completion(&head, &answers)).into_response())
}

/// Returns the whole response.
fn completion(head: &Head, answers: &[(Answer, Ended)]) -> Value {
    let mut usage = Usage::default();
    let mut choices = vec![];
    for (index, (answer, ended)) in answers.iter().enumerate() {
        if index == 0 {
            usage.add(ended)
        } else {
            usage.add_answer(ended)
        }
        choices.push(json!({
            "index": index,
            "message": message(answer),
            "logprobs": head.logprobs.then(|| json!({"content": logprobs(&answer.tokens), "refusal": null})),
            "finish_reason": finish_reason(&ended.finish),
        }));
    }
    json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": usage.chat(),
    })
}

fn message(answer: &Answer) -> Value {
    let has_content = !answer.text.is_empty() || answer.calls.is_empty();
    let mut message = Map::from_iter([
        ("role".to_owned(), json!("assistant")),
        ("content".to_owned(), has_content.then_some(answer.text.as_str()).into()),
        ("refusal".to_owned(), Value::Null),
    ]);
    if !answer.reasoning.is_empty() {
        message.insert("reasoning_content".into(), answer.reasoning.as_str().into());
    }
    if !answer.calls.is_empty() {
        let call = |call: &inkstone::chat::ToolCall| {
            let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
            json!({"id": call.id, "type": "function", "function": function})
        };
        message.insert("tool_calls".into(), answer.calls.iter().map(call).collect());
    }
    Value::Object(message)
}
