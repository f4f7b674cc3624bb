//! Tests that conversations and answers can be saved and loaded with serde.

use inkstone::{
    Completion, GenerateOptions, Message, SamplerOptions,
    chat::{AnswerEvent, Content, Document, Part, Tool, ToolCall},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, from_value, json, to_value};

use crate::support::{data, on_cpu};

fn loaded<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[test]
fn saved_conversations_load_unchanged() {
    let call = ToolCall::new("weather", json!({"place": "Oslo", "days": [1, 2]}));
    let messages = [
        Message::system("Be brief."),
        Message::user(vec![Part::text("How is the weather"), Part::text(" in Oslo?")]),
        Message::assistant("").with_reasoning("I should look.").with_tool_calls([call.clone(), call.with_id("c2")]),
        Message::tool("weather", "fair").for_call("c2"),
        Message::new("developer", "\u{0}\"\\"),
    ];
    assert_eq!(loaded(&messages.to_vec()), messages);
    let tool = Tool::new("weather", "The weather at a place", json!({"type": "object"}));
    assert_eq!(loaded(&tool), tool);
    let document = Document::new("Oslo", "a city");
    assert_eq!(loaded(&document), document);
    let events = vec![
        AnswerEvent::Reasoning("so".into()),
        AnswerEvent::Text("yes".into()),
        AnswerEvent::ToolCall(ToolCall::new("weather", json!({}))),
    ];
    assert_eq!(loaded(&events), events);
}

/// Messages in the form of Hugging Face's templates and of OpenAI's API load as well.
#[test]
fn messages_of_other_programs_load() {
    let call = |arguments: Value| json!({"type": "function", "function": {"name": "weather", "arguments": arguments}});
    let expected = Message::assistant("").with_tool_calls([ToolCall::new("weather", json!({"place": "Oslo"}))]);
    for arguments in [json!({"place": "Oslo"}), json!("{\"place\": \"Oslo\"}")] {
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call(arguments)]});
        assert_eq!(from_value::<Message>(message).unwrap(), expected);
    }
    let parts: Message = from_value(json!({"role": "user", "content": [{"type": "text", "text": "Hi"}]})).unwrap();
    assert_eq!(parts.content, Content::Parts(vec![Part::text("Hi")]));
}

#[test]
fn unknown_fields_and_malformed_calls_are_refused_by_name() {
    let refused = |message: Value| from_value::<Message>(message).unwrap_err().to_string();
    let unknown = refused(json!({"role": "user", "content": "Hi", "images": []}));
    assert!(unknown.contains("`images`"), "{unknown}");
    let arguments = json!([{"function": {"name": "weather", "arguments": "{"}}]);
    let malformed = refused(json!({"role": "assistant", "content": "", "tool_calls": arguments}));
    assert!(malformed.contains("`weather`"), "{malformed}");
    let kind = json!([{"type": "custom", "function": {"name": "weather", "arguments": {}}}]);
    let other = refused(json!({"role": "assistant", "content": "", "tool_calls": kind}));
    assert!(other.contains("custom"), "{other}");
    let image = refused(json!({"role": "user", "content": [{"type": "image"}]}));
    assert!(image.contains("content") || image.contains("Content"), "{image}");
}

#[test]
fn saved_completions_load_unchanged() {
    let mut runner = on_cpu().from_gguf(data("storyteller/storyteller.gguf")).unwrap();
    let options = GenerateOptions {
        sampler: SamplerOptions::greedy(),
        max_tokens: Some(4),
        logprobs: Some(2),
        ..Default::default()
    };
    let mut completions = runner.generate_many([("Once upon a time", &options)], |_, _| true).unwrap();
    // JSON cannot express the log-probability of an impossible token.
    completions[0].logprobs[1].top[1].logprob = f32::NEG_INFINITY;
    let saved = to_value(&completions).unwrap();
    assert_eq!(saved[0]["logprobs"][1]["top"][1]["logprob"], Value::Null);
    assert_eq!(saved[0]["summary"]["stop"], "token_limit");
    assert_eq!(from_value::<Vec<Completion>>(saved).unwrap(), completions);
}
