//! Tests what requests are refused, and which field the error names.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{app, post};

/// Sends a request with fields that replace those of a good one, and returns the field of the
/// error.
async fn refused(path: &str, fields: Value) -> String {
    let mut body = match path {
        "/v1/completions" => json!({"model": "storyteller", "prompt": "Once"}),
        "/v1/responses" => json!({"model": "storyteller", "input": "Hi"}),
        _ => json!({"model": "storyteller", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}),
    };
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    let (status, text) = post(&app(), path, &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{fields}: {text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    match &error["error"]["param"] {
        Value::String(field) => field.clone(),
        _ => error["error"]["message"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn errors_name_the_field() {
    let chat = "/v1/chat/completions";
    for (path, fields, field) in [
        (chat, json!({"mood": 1}), "mood"),
        (chat, json!({"temperature": "hot"}), "temperature"),
        (chat, json!({"temperature": -1}), "temperature"),
        (chat, json!({"messages": 1}), "messages"),
        (chat, json!({"messages": [{"role": "user"}]}), "messages[0].content"),
        (chat, json!({"messages": [{"role": "user", "content": "Hi", "mood": 1}]}), "messages[0].mood"),
        (chat, json!({"stream_options": {"mood": 1}, "stream": true}), "stream_options.mood"),
        (chat, json!({"stream_options": {}}), "stream_options"),
        (chat, json!({"logit_bias": {"x": 1}}), "logit_bias"),
        (chat, json!({"tool_choice": "sometimes"}), "tool_choice"),
        ("/v1/completions", json!({"prompt": [1, "x"]}), "prompt"),
        ("/v1/completions", json!({"echo": true}), "echo"),
        ("/v1/responses", json!({"previous_response_id": "x"}), "previous_response_id"),
        ("/v1/responses", json!({"tools": [{"type": "web_search"}]}), "tools[0]"),
        ("/v1/responses", json!({"input": [{"type": "item_reference"}]}), "input[0]"),
    ] {
        assert_eq!(refused(path, fields).await, field);
    }
}

#[tokio::test]
async fn errors_of_messages_have_their_form() {
    let message = refused("/v1/messages", json!({"tools": [{"type": "bash_20250124", "name": "bash"}]})).await;
    assert!(message.starts_with("tools[0]"), "{message}");
}

#[tokio::test]
async fn images_are_not_fetched() {
    let part = json!({"type": "image_url", "image_url": {"url": "http://localhost/x.png"}});
    let fields = json!({"messages": [{"role": "user", "content": [part]}]});
    assert_eq!(refused("/v1/chat/completions", fields).await, "messages[0].content[0].image_url.url");
}

#[tokio::test]
async fn the_queue_has_an_end() {
    let app = app();
    let admissions: Vec<_> = (0..4).map(|_| app.engine.admit().unwrap()).collect();
    let body = json!({"model": "storyteller", "prompt": "Once", "max_tokens": 1});
    assert_eq!(post(&app, "/v1/completions", &body).await.0, StatusCode::TOO_MANY_REQUESTS);
    drop(admissions);
    assert_eq!(post(&app, "/v1/completions", &body).await.0, StatusCode::OK);
    app.engine.drain();
    assert_eq!(post(&app, "/v1/completions", &body).await.0, StatusCode::SERVICE_UNAVAILABLE);
}
