//! The state of the server: `/health` and `/metrics`.

use std::{
    fmt::{Display, Write},
    sync::atomic::Ordering,
};

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
};
use serde_json::json;
use tokio::task;

use crate::{app::App, error::ApiError};

/// Returns whether the server takes requests.
pub async fn health(State(app): State<App>) -> impl IntoResponse {
    if app.engine.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "draining"})));
    }
    (StatusCode::OK, Json(json!({"status": "ok"})))
}

/// Returns the counts and gauges of the server in the text format of Prometheus.
pub async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, ApiError> {
    // The snapshot waits for the end of a step.
    let text = task::spawn_blocking(move || metrics_of(&app)).await;
    let text = text.map_err(|_| ApiError::internal("the statistics have panicked"))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

fn metrics_of(app: &App) -> String {
    let engine = app.engine.model().statistics();
    let counters = app.engine.counters();
    let mut text = Text::default();
    text.gauge("requests_admitted", "Requests that are read, wait or run", app.engine.admitted());
    text.gauge("answers_running", "Answers that are generated now", app.engine.running());
    text.counter("answers", "Complete answers", counters.answers.load(Ordering::Relaxed));
    text.counter("failures", "Answers that failed", counters.failures.load(Ordering::Relaxed));
    text.counter("prompt_tokens", "Tokens of prompts", counters.prompt_tokens.load(Ordering::Relaxed));
    let cached = counters.cached_tokens.load(Ordering::Relaxed);
    text.counter("prompt_tokens_cached", "Tokens of prompts that were in the cache", cached);
    let generated = counters.generated_tokens.load(Ordering::Relaxed);
    text.counter("generated_tokens", "Generated tokens", generated);
    text.gauge("calls_running", "Calls that the engine computes now", engine.running);
    text.gauge("calls_waiting", "Calls that wait for the next step", engine.waiting);
    text.gauge("sequences", "Open sequences", engine.sequences);
    text.gauge("cache_pages", "Pages of the cache in use", engine.pages);
    text.gauge("cache_bytes", "Size of these pages", engine.cache_bytes);
    text.gauge("cache_pages_kept", "Further pages, with the beginnings of earlier texts", engine.kept_pages);
    text.gauge("cache_bytes_kept", "Size of these pages", engine.kept_bytes);
    text.counter("steps", "Steps of the engine", engine.steps);
    text.counter("step_tokens", "Tokens in these steps", engine.tokens);
    text.counter("step_seconds", "Time of these steps", engine.busy.as_secs_f64());
    text.gauge("step_calls_max", "The largest number of calls in a step", engine.most_calls);
    text.0
}

/// Metrics in the text format of Prometheus.
#[derive(Default)]
struct Text(String);

impl Text {
    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.add(&format!("inkstone_{name}"), "gauge", help, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.add(&format!("inkstone_{name}_total"), "counter", help, value);
    }

    fn add(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name} {value}");
    }
}
