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
use inkstone::Statistics;
use serde_json::json;

use crate::app::App;

/// Returns whether the server takes requests.
pub async fn health(State(app): State<App>) -> impl IntoResponse {
    if app.engine.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "draining"})));
    }
    (StatusCode::OK, Json(json!({"status": "ok"})))
}

/// Returns the counts and gauges of the server in the text format of Prometheus.
pub async fn metrics(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics_of(&app))
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
    let short = "Calls that wait for memory of the cache";
    text.gauge("calls_short_of_memory", short, engine.short_of_memory);
    text.gauge("sequences", "Open sequences", engine.sequences);
    text.gauge("cache_pages", "Pages of the cache in use", engine.pages);
    text.gauge("cache_bytes", "Size of these pages", engine.cache_bytes);
    text.gauge("cache_pages_kept", "Further pages, with the beginnings of earlier texts", engine.kept_pages);
    text.gauge("cache_bytes_kept", "Size of these pages", engine.kept_bytes);
    if let Some(limit) = engine.cache_limit {
        text.gauge("cache_limit_bytes", "Largest size of the pages", limit);
    }
    text.counter("preemptions", "Sequences of running requests that lost their cache", engine.preemptions);
    text.counter("evictions", "Sequences that lost their cache between requests", engine.evictions);
    text.counter("steps", "Steps of the engine", engine.steps);
    text.counter("step_tokens", "Tokens in these steps", engine.tokens);
    text.counter("step_tokens_recomputed", "Tokens that the cache had lost", engine.recomputed_tokens);
    text.counter("step_seconds", "Time of these steps", engine.busy.as_secs_f64());
    text.histogram("step_duration_seconds", "Times of these steps", &engine);
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

    /// Adds the times of the engine's steps.
    fn histogram(&mut self, name: &str, help: &str, engine: &Statistics) {
        let name = format!("inkstone_{name}");
        _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} histogram");
        let bounds = Statistics::STEP_TIMES.map(|bound| bound.as_secs_f64().to_string());
        let mut count = 0;
        for (bound, steps) in bounds.iter().map(String::as_str).chain(["+Inf"]).zip(engine.step_times) {
            count += steps;
            _ = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        _ = writeln!(self.0, "{name}_sum {}\n{name}_count {count}", engine.busy.as_secs_f64());
    }

    fn add(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name} {value}");
    }
}
