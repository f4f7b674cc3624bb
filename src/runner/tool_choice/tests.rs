//! Tests that the parser reads random texts of call grammars as calls that fit their tools.

use std::{
    collections::BTreeSet,
    env, fs, process,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::call_grammar;
use crate::{
    Error,
    chat::{AnswerEvent, AnswerParser, CallForm, ChatOptions, ChatTemplate, Tool, ToolCall, ToolChoice},
    gguf::Gguf,
    grammar::{Grammar, Grammars},
    sampler::LogitsProcessor,
    tokenizer::Tokenizer,
};

const FORMS: [CallForm; 15] = [
    CallForm::TaggedJson,
    CallForm::Parameters,
    CallForm::Json,
    CallForm::Pythonic,
    CallForm::ToolCode,
    CallForm::Gemma4,
    CallForm::FunctionGemma,
    CallForm::Mistral,
    CallForm::Glm,
    CallForm::MiniMax,
    CallForm::DeepSeek,
    CallForm::KimiK2,
    CallForm::Cohere,
    CallForm::Granite,
    CallForm::Lfm2,
];

/// The marks of all formats.
const MARKS: [&str; 30] = [
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|tool_call|>",
    "<|tool_call_start|>",
    "<think>",
    "</think>",
];

/// Tokens of several characters, in which marks, quotes and brackets are joined with neighboring
/// text.
const WORDS: [&str; 50] = [
    "\":",
    "\", \"",
    "\"}",
    "}}",
    "{\"",
    " {\"name",
    "name\"",
    "tool",
    "_call",
    ">{\"",
    ">\n",
    "</",
    "\n</",
    "parameter",
    "<parameter=",
    "function",
    "<function=",
    "call:",
    "weather",
    "stop",
    "place",
    ": ",
    ", ",
    "[{",
    "}]",
    "[weather(",
    "\")",
    "='",
    "'",
    "```",
    "``",
    "tool_code\n",
    "<|",
    "|>",
    "12",
    "true",
    "null",
    "é\"",
    "😀",
    "\\n",
    "\n</parameter>",
    "</parameter>",
    "</arg_value>",
    "<arg_key>",
    "</arg_key>\n<arg_value>",
    "</invoke>",
    "<parameter name=\"",
    "<invoke name=\"",
    "tool_call>",
    "\n```",
];

/// Returns a vocabulary of bytes, words and the marks of all formats, which are special or ordinary
/// tokens.
fn vocabulary(special: bool) -> Tokenizer {
    let plain = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let remapped: Vec<u8> = (0..=255).filter(|byte| !plain(*byte)).collect();
    // The spelling of GPT-2: bytes without a printable character are spelt by characters from
    // U+0100.
    let spell = |byte: u8| match remapped.iter().position(|remapped| *remapped == byte) {
        Some(index) => char::from_u32(256 + index as u32).unwrap(),
        None => char::from(byte),
    };
    let bytes = (0..=255).map(|byte| spell(byte).to_string());
    let words = WORDS.iter().map(|word| word.bytes().map(spell).collect::<String>());
    let end = [("<|end|>".to_owned(), 3)];
    let marks = MARKS.map(|mark| (mark.to_owned(), if special { 3 } else { 1 }));
    let tokens: Vec<(String, u32)> = bytes.chain(words).map(|text| (text, 1)).chain(end).chain(marks).collect();
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let number = |number: u32| number.to_le_bytes().to_vec();
    let array = |kind: u32, items: Vec<Vec<u8>>| {
        [number(kind), (items.len() as u64).to_le_bytes().to_vec(), items.concat()].concat()
    };
    let keys = [
        ("tokenizer.ggml.model", 8, string("gpt2")),
        ("tokenizer.ggml.pre", 8, string("gpt-2")),
        ("tokenizer.ggml.tokens", 9, array(8, tokens.iter().map(|(text, _)| string(text)).collect())),
        ("tokenizer.ggml.token_type", 9, array(5, tokens.iter().map(|(_, kind)| number(*kind)).collect())),
        ("tokenizer.ggml.merges", 9, array(8, vec![])),
        ("tokenizer.ggml.eos_token_id", 4, number(256 + WORDS.len() as u32)),
    ];
    let keys = keys.map(|(key, kind, value)| [string(key), number(kind), value].concat());
    let head = [b"GGUF".to_vec(), number(3), vec![0; 8], (keys.len() as u64).to_le_bytes().to_vec()];
    let file = [head.concat(), keys.concat(), vec![0; 64]].concat();
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let path = env::temp_dir().join(format!(
        "inkstone-vocabulary-{}-{}.gguf",
        process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    fs::write(&path, file).unwrap();
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap();
    fs::remove_file(path).unwrap();
    tokenizer
}

fn tools() -> [Tool; 4] {
    let weather = json!({
        "type": "object",
        "properties": {
            "place": { "type": "string", "description": "Where", "minLength": 1, "maxLength": 12 },
            "days": { "type": "integer", "minimum": 1, "maximum": 14 },
            "unit": { "enum": ["C", "F", "it's \"odd\"\n", 3, null, true] },
            "hours": { "type": "array", "items": { "type": "number", "minimum": -0.5, "exclusiveMaximum": 24 }, "maxItems": 3 },
            "more": {
                "type": "object",
                "properties": { "sure": { "type": "boolean" }, "tags": { "type": "array", "minItems": 1, "maxItems": 2 } },
                "required": ["sure"],
            },
            "note": { "anyOf": [{ "type": "string", "maxLength": 4 }, { "type": "integer", "minimum": 5 }, { "type": "null" }] },
            "code": { "type": "string", "pattern": "^[a-z]{2}\\d/|^x$" },
            "maybe": { "type": "string", "nullable": true, "maxLength": 3 },
            "either": { "oneOf": [{ "type": "boolean" }, { "type": "array", "items": { "const": "a" }, "maxItems": 2 }] },
        },
        "required": ["place", "hours", "note"],
        "additionalProperties": false,
    });
    let tree = json!({
        "type": "object",
        "properties": { "root": { "$ref": "#/$defs/node" }, "kind": { "allOf": [{ "$ref": "#/$defs/kind" }], "title": "Kind" } },
        "required": ["root", "kind"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": { "type": "string", "maxLength": 3 },
                    "left": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/node" }] },
                    "right": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/node" }] },
                },
                "required": ["name"],
            },
            "kind": { "type": "string", "enum": ["oak", "elm"] },
        },
    });
    let map = json!({ "type": "object", "additionalProperties": { "type": "integer" }, "maxProperties": 2 });
    [
        Tool::new("weather", "The weather", weather),
        Tool::new("stop", "Stops", json!({ "type": "object", "properties": {} })),
        Tool::new("tree", "Draws", tree),
        Tool::new(
            "set-all",
            "Sets",
            json!({ "type": "object", "properties": { "values": map, "text": { "type": "string" } } }),
        ),
    ]
}

/// A random number generator (xorshift).
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % count
    }
}

/// Draws a text of a grammar that starts with the tokens `prefix`: random allowed tokens,
/// preferring tokens that lead to an end. Returns `None` for a text that does not end.
fn draw(grammar: &Grammar, tokenizer: &Tokenizer, random: &mut XorShift, prefix: &[u32]) -> Option<String> {
    let vocab_size = tokenizer.vocab_size();
    let mut constraint = grammar.constraint(vocab_size).unwrap();
    let (mut ids, mut bytes) = (vec![], vec![]);
    for step in 0..3000 {
        let mut logits = vec![0.0; vocab_size];
        constraint.process(&ids, &mut logits).unwrap();
        let mut allowed: Vec<u32> = (0..vocab_size as u32).filter(|&id| logits[id as usize] == 0.0).collect();
        assert!(!allowed.is_empty(), "no token is allowed after {:?}", String::from_utf8_lossy(&bytes));
        let ends = |id: &u32| {
            let text = tokenizer.token_bytes(*id).unwrap();
            *id >= 256 + WORDS.len() as u32 || text.iter().any(|byte| b"\"'<]})\n".contains(byte))
        };
        if random.below(5) > 2 && allowed.iter().any(ends) {
            allowed.retain(ends);
        }
        let id = prefix.get(step).copied().unwrap_or_else(|| allowed[random.below(allowed.len())]);
        assert_eq!(logits[id as usize], 0.0, "the prefix is not allowed after {:?}", String::from_utf8_lossy(&bytes));
        if tokenizer.is_end_of_generation(id) {
            return Some(String::from_utf8(bytes).unwrap());
        }
        bytes.extend(tokenizer.token_bytes(id).unwrap());
        ids.push(id);
    }
    None
}

fn parser(options: &ChatOptions) -> AnswerParser {
    ChatTemplate::new("{{ tools }}<think></think>", "", "").unwrap().parser(options, "").unwrap()
}

/// Returns the calls and the text of an answer; panics if a call is invalid.
fn read(mut parser: AnswerParser, answer: &str) -> (Vec<ToolCall>, String) {
    let mut events = parser.push(answer);
    events.extend(parser.finish());
    let (mut calls, mut text) = (vec![], String::new());
    for event in events {
        match event {
            Ok(AnswerEvent::ToolCall(call)) => calls.push(call),
            Ok(AnswerEvent::Text(piece)) => text += &piece,
            other => panic!("{other:?} in {answer:?}"),
        }
    }
    (calls, text)
}

/// Returns a vocabulary in which marks are text, and one in which they are special tokens.
fn vocabularies() -> [(Tokenizer, Grammars); 2] {
    [false, true].map(|special| {
        let tokenizer = vocabulary(special);
        let grammars = Grammars::new(&tokenizer).unwrap();
        (tokenizer, grammars)
    })
}

fn compile(parser: &AnswerParser, tokenizer: &Tokenizer, grammars: &Grammars) -> Grammar {
    let grammar = call_grammar(parser, tokenizer).unwrap().unwrap();
    grammars.lark(&grammar).unwrap_or_else(|e| panic!("{e}\n{grammar}"))
}

#[test]
fn forced_calls_fit_their_tools_in_every_format() {
    for (tokenizer, grammars) in vocabularies() {
        for form in FORMS {
            for (choice, parallel) in [(ToolChoice::Required, true), (ToolChoice::named("weather"), false)] {
                let options = ChatOptions::default().tools(tools()).call_form(form).tool_choice(choice.clone());
                let parser = parser(&options.parallel_tool_calls(parallel));
                let grammar = compile(&parser, &tokenizer, &grammars);
                let (mut finished, mut several, mut names) = (0, 0, BTreeSet::new());
                for seed in 1..40 {
                    let Some(answer) = draw(&grammar, &tokenizer, &mut XorShift(seed << 20), &[]) else { continue };
                    let (calls, text) = read(parser.clone(), &answer);
                    assert!(!calls.is_empty() && text.is_empty(), "{form:?}: {answer:?}");
                    assert!(parallel || calls.len() == 1 && calls[0].name == "weather", "{form:?}: {answer:?}");
                    finished += 1;
                    several += usize::from(calls.len() > 1);
                    names.extend(calls.into_iter().map(|call| call.name));
                }
                assert!(finished > 30, "{form:?}: {finished} texts ended");
                assert!(!parallel || several > 3 && names.len() == 4, "{form:?}: {several} with several, of {names:?}");
            }
        }
    }
}

#[test]
fn unforced_answers_have_valid_calls_or_none() {
    for (tokenizer, grammars) in vocabularies() {
        for form in FORMS {
            let options = ChatOptions::default().tools(tools()).call_form(form).tool_choice(ToolChoice::Auto);
            let parser = parser(&options);
            let grammar = compile(&parser, &tokenizer, &grammars);
            // Half of the answers start with text and a call, or with a call.
            let encode = |text: &str| tokenizer.encode(text, crate::tokenizer::SpecialTokens::Parse).unwrap();
            let open = match form {
                CallForm::Json => "{ \"name\":\"stop\"",
                CallForm::Pythonic => "[ stop (",
                CallForm::ToolCode => "So: ```tool_code",
                CallForm::Gemma4 => "So: <|tool_call>",
                CallForm::FunctionGemma => "So: <start_function_call>",
                CallForm::Mistral => "So: [TOOL_CALLS]",
                CallForm::MiniMax => "So: <minimax:tool_call>",
                CallForm::DeepSeek => "So: <｜tool▁calls▁begin｜>",
                CallForm::KimiK2 => "So: <|tool_calls_section_begin|>",
                CallForm::Cohere => "So: <|START_ACTION|>",
                CallForm::Granite => "So: <|tool_call|>",
                CallForm::Lfm2 => "So: <|tool_call_start|>",
                _ => "So: <tool_call>",
            };
            let (mut with_calls, mut with_text) = (0, 0);
            for seed in 1..30 {
                let prefix = if seed % 2 == 0 { encode(open) } else { vec![] };
                let Some(answer) = draw(&grammar, &tokenizer, &mut XorShift(seed << 21), &prefix) else { continue };
                let (calls, text) = read(parser.clone(), &answer);
                assert!(prefix.is_empty() || !calls.is_empty(), "{form:?}: {answer:?}");
                with_calls += usize::from(!calls.is_empty());
                with_text += usize::from(!text.is_empty());
            }
            assert!(with_calls > 8 && with_text > 8, "{form:?}: {with_calls} with calls, {with_text} with text");
            let without_calls = self::parser(&options.tool_choice(ToolChoice::None));
            let grammar = compile(&without_calls, &tokenizer, &grammars);
            for seed in 1..10 {
                let Some(answer) = draw(&grammar, &tokenizer, &mut XorShift(seed << 22), &[]) else { continue };
                assert!(read(without_calls.clone(), &answer).0.is_empty(), "{form:?}: {answer:?}");
            }
        }
    }
}

#[test]
fn schemas_that_a_grammar_cannot_express_are_refused_by_name() {
    let tokenizer = vocabulary(false);
    let refused = |form: CallForm, tool: Tool, named: &str| {
        let parser = parser(&ChatOptions::default().tools([tool]).call_form(form).tool_choice(ToolChoice::Required));
        let error = match call_grammar(&parser, &tokenizer) {
            Some(Err(Error::Grammar(what))) => what,
            other => panic!("{other:?}"),
        };
        assert!(error.contains(named), "{error}");
    };
    let property = |schema: Value| json!({ "type": "object", "properties": { "a": schema }, "required": ["a"] });
    for (schema, named) in [
        (json!({ "multipleOf": 2 }), "multipleOf"),
        (json!({ "not": {} }), "not"),
        (json!({ "type": "array", "uniqueItems": true }), "uniqueItems"),
        (json!({ "oneOf": [{ "type": "string" }, { "minLength": 3 }] }), "oneOf"),
        (json!({ "type": "integer", "minimum": 3, "maximum": 2 }), "no arguments"),
        (json!({ "$ref": "#/properties/a" }), "never end"),
        (json!({ "type": "object", "properties": { "b": {} }, "minProperties": 1 }), "minProperties"),
    ] {
        FORMS.iter().for_each(|form| refused(*form, Tool::new("f", "", property(schema.clone())), named));
    }
    refused(CallForm::Pythonic, Tool::new("f g", "", json!({})), "`f g`");
    refused(CallForm::Parameters, Tool::new("f>", "", json!({})), "`f>`");
    refused(CallForm::Json, Tool::new("f\"", "", json!({})), "name");
    let key = json!({ "type": "object", "properties": { "a b": {} } });
    refused(CallForm::ToolCode, Tool::new("f", "", key), "`a b`");
}
