//! The responses API: `/v1/responses`. Nothing is stored: clients send the whole conversation.

mod input;
mod output;
mod request;
mod tools;

use axum::{
    Json,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value};

pub use self::output::ResponseWriter;
use self::{request::ResponsesRequest, tools::Namespaces};
use crate::{app::App, body, engine::Job, error::ApiError, sse};

/// A request that has been checked.
struct ResponsesCall {
    job: Job,
    stream: bool,
    settings: Settings,
}

/// The settings of a request that its response repeats, and what the response includes.
#[derive(Default)]
pub struct Settings {
    /// The fields of the request, as they were sent.
    fields: Map<String, Value>,
    /// Whether reasoning comes with a form that clients send back.
    encrypted_reasoning: bool,
    /// Whether text comes with log-probabilities.
    logprobs: bool,
    /// The namespaces of tools.
    namespaces: Namespaces,
}

/// Answers a conversation.
pub async fn create(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let (call, admission) = body::read(&app, request, ResponsesRequest::into_call).await?;
    let ResponsesCall { job, stream, settings } = call;
    let mut writer = ResponseWriter::new(app.name.clone(), settings);
    let mut reply = app.engine.start(job, admission);
    let first = reply.first().await?;
    if stream {
        return Ok(sse::respond(first, reply, writer));
    }
    let mut next = Some(first);
    while let Some((_, event)) = next {
        writer.add(event)?;
        next = reply.next().await;
    }
    Ok(Json(writer.response()).into_response())
}
