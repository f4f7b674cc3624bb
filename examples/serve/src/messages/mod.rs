//! The API of Anthropic: `/v1/messages` and `/v1/messages/count_tokens`.

mod block;
mod request;
mod stream;

use axum::{
    Json,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use self::request::MessagesRequest;
pub use self::stream::MessageStream;
use crate::{
    app::App,
    body,
    engine::{Answer, Ended, Finish, Job},
    error::ApiError,
    id, sse,
};

/// A request that has been checked.
struct MessagesCall {
    job: Job,
    stream: bool,
    /// Whether the answer leaves its reasoning out.
    omits_thinking: bool,
}

/// The fields that an answer has from the start.
pub struct Head {
    id: String,
    model: String,
    omits_thinking: bool,
}

impl Head {
    /// Returns the fields of a new answer of a model, which may leave its reasoning out.
    pub fn new(model: String, omits_thinking: bool) -> Self {
        Self { id: id::unique("msg_"), model, omits_thinking }
    }
}

/// Answers a conversation.
pub async fn create(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let (call, admission) = body::read(&app, request, MessagesRequest::into_call).await?;
    let MessagesCall { job, stream, omits_thinking } = call;
    let head = Head::new(app.name.clone(), omits_thinking);
    let mut reply = app.engine.start(job, admission);
    if stream {
        let first = reply.first().await?;
        return Ok(sse::respond(first, reply, MessageStream::new(head)));
    }
    let mut answers = reply.answers().await?;
    let answer = answers.pop().ok_or_else(|| ApiError::internal("the request has no answer"))?;
    Ok(Json(message(&head, &answer)).into_response())
}

/// Returns the number of tokens of a conversation.
pub async fn count_tokens(State(app): State<App>, request: Request) -> Result<Json<Value>, ApiError> {
    let (count, _) = body::read(&app, request, MessagesRequest::count).await?;
    Ok(Json(json!({"input_tokens": count})))
}

/// Returns the whole answer.
fn message(head: &Head, (answer, ended): &(Answer, Ended)) -> Value {
    let mut content = vec![];
    if !answer.reasoning.is_empty() && !head.omits_thinking {
        content.push(json!({"type": "thinking", "thinking": answer.reasoning, "signature": ""}));
    }
    if !answer.text.is_empty() {
        content.push(json!({"type": "text", "text": answer.text}));
    }
    for call in &answer.calls {
        content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}));
    }
    let mut message = start(head);
    let (reason, stop) = stop_reason(&ended.finish);
    message["content"] = content.into();
    message["stop_reason"] = reason.into();
    message["stop_sequence"] = stop.into();
    message["usage"] = usage(ended);
    message
}

/// Returns an answer without content.
fn start(head: &Head) -> Value {
    json!({
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    })
}

/// Returns the reason why an answer ended, and the stop string.
fn stop_reason(finish: &Finish) -> (&'static str, Option<&str>) {
    match finish {
        Finish::Turn => ("end_turn", None),
        Finish::StopString(text) => ("stop_sequence", Some(text)),
        Finish::TokenLimit => ("max_tokens", None),
        Finish::ContextEnd => ("model_context_window_exceeded", None),
        Finish::Calls => ("tool_use", None),
    }
}

/// Returns the counts of tokens; those of the input are without the cached ones.
fn usage(ended: &Ended) -> Value {
    let summary = &ended.summary;
    json!({
        "input_tokens": summary.prompt_tokens - summary.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": summary.cached_tokens,
        "output_tokens": summary.generated_tokens,
    })
}
