//! Tests the events of streams.

use axum::http::StatusCode;
use inkstone::{GenerateOptions, chat::ToolCall};
use serde_json::{Value, json};

use super::{MODEL, app, events, post};
use crate::{
    engine::{Ended, Event, Finish, Piece},
    error::ApiError,
    messages::{Head, MessageStream},
    responses::{ResponseWriter, Settings},
    sse::{Encoder, Message},
};

const TEXT: &str = "Once upon a time";

async fn stream(path: &str, body: Value) -> Vec<Value> {
    let (status, text) = post(&app(), path, &body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    events(&text)
}

#[tokio::test]
async fn a_chat_has_a_role_text_and_an_end() {
    let messages = json!([{"role": "user", "content": "Tell me a story about a fox and a lantern"}]);
    let body = json!({"model": "storyteller", "messages": messages, "max_tokens": 4, "temperature": 0, "stream": true});
    let chunks = stream("/v1/chat/completions", body).await;
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, TEXT);
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_completion_has_text_and_usage() {
    let options = json!({"include_usage": true});
    let body = json!({
        "model": "storyteller", "prompt": [2, 1], "max_tokens": 3, "n": 2, "stream": true, "stream_options": options,
    });
    let chunks = stream("/v1/completions", body).await;
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 6);
    assert_eq!(chunks.last().unwrap()["usage"]["prompt_tokens"], 2);
}

/// Returns the events of an answer with reasoning, text and a call.
fn answer() -> Vec<Event> {
    let mut runner = MODEL.clone();
    let options = GenerateOptions { max_tokens: Some(2), ..GenerateOptions::default() };
    let mut generation = runner.generate(TEXT, &options).unwrap();
    generation.by_ref().for_each(|piece| drop(piece.unwrap()));
    let summary = generation.summary().clone();
    let call = ToolCall::new("weather", json!({"place": "Oslo"})).with_id("call_1");
    vec![
        Event::Started(4),
        Event::Piece(Piece::Reasoning("Hm".into()), vec![]),
        Event::Piece(Piece::Reasoning(".".into()), vec![]),
        Event::Piece(Piece::Text("Yes".into()), vec![]),
        Event::Piece(Piece::Call(call), vec![]),
        Event::Ended(Ended { finish: Finish::Calls, summary, reasoning_tokens: 1 }),
    ]
}

/// Returns the types of the events of an answer.
fn kinds(encoder: &mut impl Encoder, answer: Vec<Event>) -> Vec<String> {
    let messages = answer.into_iter().flat_map(|event| encoder.encode(0, event));
    let kind = |message| match message {
        Message::Named(event) => event["type"].as_str().unwrap().to_owned(),
        Message::Data(_) | Message::Done => panic!("the event has no name"),
    };
    messages.map(kind).collect()
}

#[test]
fn a_message_has_a_block_for_each_part() {
    let mut encoder = MessageStream::new(Head::new("storyteller".into(), false));
    assert_eq!(
        kinds(&mut encoder, answer()),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
}

#[test]
fn a_response_has_an_item_for_each_part() {
    let mut writer = ResponseWriter::new("storyteller".into(), Settings::default());
    let kinds = kinds(&mut writer, answer());
    assert_eq!(kinds.iter().filter(|kind| *kind == "response.output_item.done").count(), 3);
    assert_eq!(kinds.last().unwrap(), "response.completed");
    let response = writer.response();
    let types: Vec<_> = response["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(types, ["reasoning", "message", "function_call"]);
    assert_eq!(response["output"][0]["content"][0]["text"], "Hm.");
}

#[test]
fn errors_end_streams() {
    let failure = || vec![Event::Started(4), Event::Failed(ApiError::draining())];
    assert_eq!(
        kinds(&mut MessageStream::new(Head::new("storyteller".into(), false)), failure()),
        ["message_start", "error"]
    );
    let kinds = kinds(&mut ResponseWriter::new("storyteller".into(), Settings::default()), failure());
    assert_eq!(kinds, ["response.created", "response.in_progress", "response.failed"]);
}
