//! Tests the endpoints without a network, with the storyteller. The oracle for what clients
//! understand are those of OpenAI and Anthropic; see `clients/`.

mod requests;
mod streams;

use std::sync::LazyLock;

use axum::{
    body::{self, Body},
    http::{Request, StatusCode, header},
};
use inkstone::Runner;
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    app::{Access, App},
    engine::Engine,
};

static MODEL: LazyLock<Runner> = LazyLock::new(|| Runner::from_gguf(crate::storyteller()).unwrap());

/// Returns a server of the storyteller.
fn app() -> App {
    App::new(Engine::new(MODEL.clone(), 2, 2), "storyteller".into(), Access::Local)
}

/// Sends a request, and returns the status and the body of the response.
async fn post(app: &App, path: &str, body: &Value) -> (StatusCode, String) {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    let response = app.clone().router().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
    let status = response.status();
    let bytes = body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// Returns the data of the events of a stream.
fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}
