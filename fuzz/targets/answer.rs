//! Parses an answer in pieces of any length and as a whole: both must give the same.
//!
//! Input: a byte that picks the form of calls and the marks of a thought, the lengths of four
//! pieces, the schema of a tool's arguments (empty: a fixed one), a 0, and the answer.

#![no_main]

use inkstone::{Error, chat::{AnswerEvent, AnswerParser, CallForm, ChatOptions, ChatTemplate, Tool, ToolCall}};
use inkstone_fuzz::tools;
use libfuzzer_sys::fuzz_target;

const FORMS: [CallForm; 8] = [
    CallForm::TaggedJson,
    CallForm::Parameters,
    CallForm::Json,
    CallForm::Pythonic,
    CallForm::ToolCode,
    CallForm::Gemma4,
    CallForm::FunctionGemma,
    CallForm::Mistral,
];

/// Templates that show how a model thinks.
const TEMPLATES: [&str; 4] = ["", "<think>", "[THINK]", "<|channel>"];

#[derive(Debug, Default, PartialEq)]
struct Parsed {
    reasoning: String,
    text: String,
    calls: Vec<ToolCall>,
    wrong: Vec<String>,
    /// The order of what came, without how it was cut.
    order: String,
}

impl Parsed {
    fn add(&mut self, events: Vec<Result<AnswerEvent, Error>>) {
        for event in events {
            let kind = match event {
                Ok(AnswerEvent::Reasoning(text)) => {
                    self.reasoning += &text;
                    'r'
                }
                Ok(AnswerEvent::Text(text)) => {
                    self.text += &text;
                    't'
                }
                Ok(AnswerEvent::ToolCall(call)) => {
                    self.calls.push(call);
                    'c'
                }
                Err(Error::ToolCall { what, text, .. }) => {
                    self.wrong.push(format!("{what}: {text}"));
                    'w'
                }
                other => panic!("{other:?}"),
            };
            if matches!(kind, 'c' | 'w') || !self.order.ends_with(kind) {
                self.order.push(kind);
            }
        }
    }
}

fn parse<'a>(mut parser: AnswerParser, pieces: impl IntoIterator<Item = &'a str>) -> Parsed {
    let mut parsed = Parsed::default();
    pieces.into_iter().for_each(|piece| parsed.add(parser.push(piece)));
    parsed.add(parser.finish());
    assert!(parser.finish().is_empty());
    parsed
}

/// Splits the text into pieces of 1 to 16 characters, by the lengths in turn.
fn pieces<'a>(mut text: &'a str, lengths: &[u8]) -> Vec<&'a str> {
    let mut pieces = vec![];
    for &length in lengths.iter().cycle() {
        let Some((at, _)) = text.char_indices().nth(1 + usize::from(length % 16)) else { break };
        let (piece, rest) = text.split_at(at);
        pieces.push(piece);
        text = rest;
    }
    pieces.push(text);
    pieces
}

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, lengths @ ..], texts)) = input.split_first_chunk::<5>() else { return };
    let Ok(texts) = str::from_utf8(texts) else { return };
    let (schema, answer) = texts.split_once('\0').unwrap_or(("", texts));
    let mut offered = tools();
    if !schema.is_empty() {
        let Ok(schema) = serde_json::from_str::<serde_json::Value>(schema) else { return };
        offered[0] = Tool::new("weather", "", schema);
    }
    let options = ChatOptions::default().tools(offered).call_form(FORMS[usize::from(kind % 8)]);
    let template = TEMPLATES[usize::from(kind / 8 % 4)];
    let prompt = if kind >= 128 { template } else { "" };
    let template = ChatTemplate::new(&format!("{{{{ tools }}}}{template}"), "", "").expect("a valid template");
    let Ok(parser) = template.parser(&options, prompt) else { return };
    let whole = parse(parser.clone(), [answer]);
    assert_eq!(parse(parser.clone(), pieces(answer, &lengths)), whole);
    assert_eq!(parse(parser, pieces(answer, &[0])), whole);
});
