//! Tests of answers as the chat templates of several families write them
//! (tests/data/chat/transcripts.py).

use std::{fs, path::Path};

use inkstone::chat::{AnswerEvent, AnswerParser, ChatOptions, ChatTemplate, ToolCall, ToolChoice};
use serde_json::{Value, json};

use super::render::tools;

/// Reads the cases, and the tools that all of them offer.
fn cases() -> (ChatOptions, Vec<Value>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat/transcripts.json");
    let file: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    (ChatOptions::default().tools(tools(&file["tools"])), file["cases"].as_array().unwrap().clone())
}

/// Returns the parser that a template with the case's marks gives.
fn parser(case: &Value, options: &ChatOptions) -> AnswerParser {
    let marks: String = case["shows"].as_array().unwrap().iter().map(|mark| mark.as_str().unwrap()).collect();
    let template = ChatTemplate::new(&format!("{{{{ tools }}}}{{# {marks} #}}"), "", "").unwrap();
    template.parser(options, case["prompt"].as_str().unwrap()).unwrap()
}

/// Returns the reasoning, the text and the calls of an answer that arrives in pieces.
fn read(mut parser: AnswerParser, answer: &str, length: usize) -> [Value; 3] {
    let chars: Vec<char> = answer.chars().collect();
    let mut events: Vec<_> =
        chars.chunks(length).flat_map(|piece| parser.push(&piece.iter().collect::<String>())).collect();
    events.extend(parser.finish());
    let (mut reasoning, mut text, mut calls) = (String::new(), String::new(), vec![]);
    for event in events {
        match event.unwrap() {
            AnswerEvent::Reasoning(piece) => reasoning += &piece,
            AnswerEvent::Text(piece) => text += &piece,
            AnswerEvent::ToolCall(ToolCall { name, arguments, .. }) => {
                calls.push(json!({ "name": name, "arguments": arguments }));
            }
            other => panic!("{other:?}"),
        }
    }
    [reasoning.into(), text.trim().into(), calls.into()]
}

#[test]
fn answers_are_read_as_their_templates_write_them() {
    let (options, cases) = cases();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let (template, message) = (&case["template"], &case["message"]);
        let expected = ["reasoning_content", "content", "tool_calls"].map(|part| message[part].clone());
        for length in [1, 3, 7, usize::MAX] {
            let found = read(parser(&case, &options), case["answer"].as_str().unwrap(), length);
            assert_eq!(found, expected, "{template} in pieces of {length}");
        }
    }
}

/// Without tools the marks of calls are text, and thoughts are still split off.
#[test]
fn calls_without_tools_are_text() {
    let (_, cases) = cases();
    for case in cases {
        let answer = case["answer"].as_str().unwrap();
        let [reasoning, text, calls] = read(parser(&case, &ChatOptions::default()), answer, 5);
        assert_eq!((&reasoning, &calls), (&case["message"]["reasoning_content"], &json!([])), "{}", case["template"]);
        assert!(text.as_str().unwrap().contains("stop"), "{text}");
    }
}

/// A call cut off, and one after which text follows within the marks, are errors.
#[test]
fn unfinished_and_overfull_calls_are_errors() {
    let (options, cases) = cases();
    for case in cases {
        let answer = case["answer"].as_str().unwrap();
        let cut: String = answer.chars().take(answer.chars().count() - 12).collect();
        let mut parser = parser(&case, &options.clone().tool_choice(ToolChoice::Auto));
        let mut events = parser.push(&cut);
        events.extend(parser.finish());
        assert!(events.iter().any(Result::is_err), "{}: {events:?}", case["template"]);
    }
}
