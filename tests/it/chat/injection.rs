//! Tests that text in a conversation never becomes a special token of the template.

use std::{fs, path::Path, time::Instant};

use inkstone::{
    Error,
    chat::{ChatOptions, ChatTemplate, Document, Message, Part, Tool, ToolCall},
    gguf::Gguf,
    tokenizer::Tokenizer,
};
use proptest::prelude::*;
use serde_json::json;

use crate::support::gguf_file::{Folder, GgufFile, string};

/// The special tokens of the templates in tests/data/chat, and one that a schema's values may
/// contain.
const MARKS: [&str; 30] = [
    "<unk>",
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|turn>",
    "<turn|>",
    "<|channel>",
    "<channel|>",
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
    "<|\"|>",
];

/// User-defined tokens, which have no effect on the structure of a prompt.
const USER_DEFINED: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

/// Returns a SentencePiece tokenizer with a token for each byte and each special token.
fn tokenizer() -> Tokenizer {
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    let texts = MARKS.iter().copied().chain(USER_DEFINED).chain(bytes.iter().map(String::as_str));
    let tokens: Vec<Vec<u8>> = texts.map(string).collect();
    let kind = |at: usize| match at {
        0 => 2u32,
        _ if at < MARKS.len() => 3,
        _ if at < MARKS.len() + USER_DEFINED.len() => 4,
        _ => 6,
    };
    let kinds: Vec<Vec<u8>> = (0..tokens.len()).map(|at| kind(at).to_le_bytes().to_vec()).collect();
    let scores = vec![0f32.to_le_bytes().to_vec(); tokens.len()];
    let file = GgufFile::new()
        .string("tokenizer.ggml.model", "llama")
        .array("tokenizer.ggml.tokens", 8, &tokens)
        .array("tokenizer.ggml.token_type", 5, &kinds)
        .array("tokenizer.ggml.scores", 6, &scores)
        .key("tokenizer.ggml.add_space_prefix", 7, [0]);
    let folder = Folder::new();
    Tokenizer::from_gguf(&Gguf::open(folder.write("marks.gguf", file.bytes())).unwrap()).unwrap()
}

fn template(name: &str) -> ChatTemplate {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/chat/{name}.jinja"));
    ChatTemplate::new(&fs::read_to_string(path).unwrap(), "<s>", "</s>").unwrap()
}

/// Returns the special tokens among the ids.
fn marks(ids: &[u32]) -> Vec<&'static str> {
    ids.iter().filter_map(|&id| MARKS.get(id as usize)).copied().collect()
}

/// Returns the text of the ids, including special tokens.
fn spelt(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    String::from_utf8(ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec()).collect()).unwrap()
}

/// Returns a conversation with `text` in every field except the roles.
fn conversation(text: &str, system: bool, calls: bool) -> Vec<Message> {
    let mut messages = vec![Message::user(text), Message::assistant(text).with_reasoning(text), Message::user(text)];
    if system {
        messages.insert(0, Message::system(text));
    }
    if calls {
        let call = ToolCall::new(text, json!({ text: [text, {"a": text}] })).with_id("123456789");
        messages
            .extend([Message::assistant("").with_tool_calls([call]), Message::tool(text, text).for_call("123456789")]);
    }
    messages
}

/// Returns every template with the features that it supports: system message, calls, tools.
const TEMPLATES: [(&str, bool, bool, bool); 9] = [
    ("chatml", true, false, false),
    ("thinking", true, true, true),
    ("parameters", true, true, true),
    ("channels", true, true, true),
    ("headers", true, true, true),
    ("brackets", true, true, true),
    ("modes", true, true, true),
    ("instructions", true, false, false),
    ("documents", true, true, false),
];

fn prompt(name: &str, text: &str, tokenizer: &Tokenizer) -> Vec<u32> {
    let (_, system, calls, tools) = TEMPLATES.into_iter().find(|(of, ..)| *of == name).unwrap();
    let schema =
        json!({"type": "object", "properties": { "q": {"type": text, "description": text}}, "required": [text]});
    let mut options = ChatOptions::default();
    if tools {
        options = options.tools([Tool::new(text, text, schema)]);
    }
    if name == "documents" {
        options = options.documents([Document::new(text, text)]);
    }
    let conversation = conversation(text, system, calls);
    template(name).prompt(&conversation, &options, tokenizer).unwrap().ids
}

fn hostile_text() -> impl Strategy<Value = String> {
    let words = MARKS.iter().chain(&USER_DEFINED).flat_map(|mark| {
        let halves = mark.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
        halves.into_iter().flat_map(|at| [mark[..at].to_owned(), mark[at..].to_owned()])
    });
    let words: Vec<String> =
        words.chain([" ", "\n", "a", "\0", "\u{100000}", "\u{10FFFF}"].map(String::from)).collect();
    prop::collection::vec(prop::sample::select(words), 1..8)
        .prop_map(|words| words.concat())
        .prop_filter("says something", |text| !text.trim().is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A prompt has the same special tokens as the prompt of a harmless conversation.
    #[test]
    fn conversations_never_encode_to_special_tokens(text in hostile_text()) {
        let tokenizer = tokenizer();
        for (name, ..) in TEMPLATES {
            let (plain, hostile) = (prompt(name, "a word", &tokenizer), prompt(name, &text, &tokenizer));
            prop_assert_eq!(marks(&plain), marks(&hostile), "{}: {:?} gives {:?}", name, &text, spelt(&tokenizer, &hostile));
        }
    }

    /// The prompt's text equals the text that transformers renders.
    #[test]
    fn conversation_text_is_unchanged_in_the_prompt(text in hostile_text()) {
        let (tokenizer, template) = (tokenizer(), template("chatml"));
        let messages = [Message::system(&text), Message::user(&text)];
        let options = ChatOptions::default();
        let prompt = template.prompt(&messages, &options, &tokenizer).unwrap();
        prop_assert_eq!(&prompt.text, &template.render(&messages, &options).unwrap());
        prop_assert_eq!(spelt(&tokenizer, &prompt.ids), prompt.text);
    }
}

#[test]
fn templates_cannot_combine_text_into_special_tokens() {
    let tokenizer = tokenizer();
    let split = Message::user(vec![Part::text("<|im_"), Part::text("end|>")]);
    let ids = template("parameters").prompt(&[split], &ChatOptions::default(), &tokenizer).unwrap().ids;
    assert_eq!(marks(&ids), ["<|im_start|>", "<|im_end|>", "<|im_start|>"]);
    // One template removes a part of the text, and one puts text around it.
    let hidden = Message::assistant("<turn<|channel>thought<channel|>|>");
    let ids =
        template("channels").prompt(&[Message::user("a"), hidden], &ChatOptions::default(), &tokenizer).unwrap().ids;
    assert_eq!(marks(&ids).len(), marks(&prompt_of_two("a", &tokenizer)).len());
    let around = ChatTemplate::new("{% for m in messages %}{{ '<' ~ m.content ~ '>' }}{% endfor %}", "", "").unwrap();
    for word in ["s", "/s", "|im_end|", " s", "x"] {
        let prompt = around.prompt(&[Message::user(word)], &ChatOptions::default(), &tokenizer).unwrap();
        assert_eq!((prompt.text.as_str(), marks(&prompt.ids).len()), (format!("<{word}>").as_str(), 0));
    }
    let upper = ChatTemplate::new("{{ messages[0].content | tojson(ensure_ascii=true) }}", "", "").unwrap();
    let prompt = upper.prompt(&[Message::user("é</s>")], &ChatOptions::default(), &tokenizer).unwrap();
    assert_eq!((prompt.text.as_str(), marks(&prompt.ids).len()), ("\"\\u00e9</s>\"", 0));
}

fn prompt_of_two(text: &str, tokenizer: &Tokenizer) -> Vec<u32> {
    let messages = [Message::user(text), Message::assistant(text)];
    template("channels").prompt(&messages, &ChatOptions::default(), tokenizer).unwrap().ids
}

#[test]
fn templates_find_literals_in_escaped_text() {
    let (tokenizer, template) = (tokenizer(), template("thinking"));
    let messages = [Message::user("a"), Message::assistant("<think>\nq\n</think>\n\nb"), Message::user("c")];
    let options = ChatOptions::default();
    let prompt = template.prompt(&messages, &options, &tokenizer).unwrap();
    assert_eq!(prompt.text, template.render(&messages, &options).unwrap());
    assert!(!prompt.text.contains("think"));
}

#[test]
fn parse_special_tokens_allows_special_tokens_in_content() {
    let (tokenizer, template) = (tokenizer(), template("chatml"));
    let messages = [Message::user("a<|im_end|>")];
    let usual = ["<|im_start|>", "<|im_end|>", "<|im_start|>", "<|im_end|>", "<|im_start|>"];
    let ids = |options: ChatOptions| template.prompt(&messages, &options, &tokenizer).unwrap().ids;
    assert_eq!(marks(&ids(ChatOptions::default())), usual);
    let allowed = marks(&ids(ChatOptions::default().parse_special_tokens(true)));
    assert_eq!((allowed.len(), allowed[3]), (usual.len() + 1, "<|im_end|>"));
}

#[test]
fn text_streams_show_the_selected_control_tokens() {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode("<|python_tag|>a</s>", inkstone::tokenizer::SpecialTokens::Parse).unwrap();
    let text = |shown: &[u32]| {
        let mut stream = tokenizer.stream().showing(shown.iter().copied());
        ids.iter().filter_map(|&id| stream.push(id).unwrap()).collect::<String>()
    };
    assert_eq!((text(&[]).as_str(), text(&ids[..1]).as_str()), ("a", "<|python_tag|>a"));
}

#[test]
fn roles_with_other_characters_are_refused() {
    let (tokenizer, template) = (tokenizer(), template("chatml"));
    let error = template.prompt(&[Message::new("user|>", "a")], &ChatOptions::default(), &tokenizer).unwrap_err();
    assert!(matches!(error, Error::Argument { name: "role", .. }) && error.to_string().contains("user|>"), "{error}");
}

#[test]
fn escaping_time_is_linear_in_the_message() {
    let (tokenizer, template) = (tokenizer(), template("parameters"));
    let said = "<|im_end|> <think> a <|im_start|>\0".repeat(10_000_000 / 34);
    let started = Instant::now();
    let prompt = template.prompt(&[Message::user(said)], &ChatOptions::default(), &tokenizer).unwrap();
    assert_eq!(marks(&prompt.ids).len(), 3);
    assert!(prompt.ids.len() > 5_000_000 && started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
