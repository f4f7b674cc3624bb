//! Chat templates against what transformers renders (tests/data/chat/make.py).

use std::path::Path;

use inkstone::Error;
use inkstone::chat::{ChatOptions, ChatTemplate, Message};
use inkstone::gguf::Gguf;
use inkstone::tokenizer::{SpecialTokens, Tokenizer};
use serde_json::Value;

use crate::tokenizer_errors::tiny;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat").join(name)).unwrap()
}

#[test]
fn prompts_are_those_of_transformers() {
    let cases: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let template = ChatTemplate::new(&read(&format!("{name}.jinja")), "<s>", "</s>").unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let messages: Vec<Message> = case["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| Message::new(text(&m["role"]), text(&m["content"])))
            .collect();
        let mut options =
            ChatOptions::default().add_generation_prompt(case["add_generation_prompt"].as_bool().unwrap());
        for (name, value) in case["variables"].as_object().unwrap() {
            options = options.variable(name, value);
        }
        let rendered = template.render(&messages, &options);
        match case["prompt"].as_str() {
            Some(prompt) => assert_eq!(rendered.unwrap(), prompt, "{case}"),
            None => {
                let error = rendered.unwrap_err().to_string();
                assert!(error.contains(&text(&case["error"])) && error.contains("line "), "{error}");
            }
        }
    }
}

fn failure(template: Result<ChatTemplate, Error>) -> String {
    match template.and_then(|t| t.render(&[Message::user("hello")], &ChatOptions::default())) {
        Err(error @ Error::ChatTemplate(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_file_gives_the_template_and_its_marks() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer/bpe.gguf");
    let gguf = Gguf::open(path).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let template = ChatTemplate::from_gguf(&gguf, &tokenizer).unwrap();
    let prompt = template.render(&[Message::system("a"), Message::user("b")], &ChatOptions::default()).unwrap();
    assert_eq!(prompt, "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n");
    let ids = tokenizer.encode(&prompt, SpecialTokens::Parse).unwrap();
    assert_eq!(ids.iter().filter(|&&id| tokenizer.is_end_of_generation(id)).count(), 2);
    assert_eq!(String::from_utf8_lossy(tokenizer.token_bytes(ids[0]).unwrap()), "<|im_start|>");

    let gguf = tiny().string("tokenizer.chat_template", "{{ bos_token }}|{{ eos_token }}").open();
    let template = ChatTemplate::from_gguf(&gguf, &Tokenizer::from_gguf(&gguf).unwrap()).unwrap();
    assert_eq!(template.render(&[], &ChatOptions::default()).unwrap(), "<s>|</s>");
}

#[test]
fn a_missing_template_says_what_to_do() {
    let gguf = tiny().open();
    let error = ChatTemplate::from_gguf(&gguf, &Tokenizer::from_gguf(&gguf).unwrap()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.chat_template") && error.contains("instruct"), "{error}");
}

#[test]
fn failures_name_the_line() {
    let fails = |source: &str| failure(ChatTemplate::new(source, "", ""));
    assert!(fails("one\n{% if %}").contains("line 2"));
    assert!(fails("one\n\n{{ messages[0].missing.deeper }}").contains("line 3"));
    assert!(fails("{% for m in messages %}\n{{ m.unknown_method() }}{% endfor %}").contains("line 2"));
    assert!(fails("{{ strftime_now('%!') }}").contains("strftime_now"));
    assert!(fails("{% include 'another' %}").contains("line 1"));
}

#[test]
fn runaway_templates_are_stopped() {
    let fails = |source: &str| failure(ChatTemplate::new(source, "", ""));
    let long = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{{ c }}{% endfor %}{% endfor %}{% endfor %}";
    assert!(fails(long).contains("too many steps"));
    assert!(fails("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}").contains("line 1"));
    fails("{{ 'x' * 1000000000000 }}");
    for sized in [
        "'x' | indent(1000000000000)",
        "'x' | indent(width=1000000000000)",
        "'%1000000000000d' | format(1)",
        "'{:1000000000000}'.format(1)",
        "[1] | slice(1000000000000) | list",
    ] {
        assert!(fails(&format!("{{{{ {sized} }}}}")).contains("more than 9999"));
    }
    fails(&"{% if true %}".repeat(10_000));
    fails(&format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000)));
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}";
    assert!(fails(&format!("{nested}{{{{ ns.x }}}}")).contains("nested too deeply"));
}

#[test]
fn strftime_now_tells_the_time() {
    let template = ChatTemplate::new("{{ strftime_now('%s') }}", "", "").unwrap();
    let told: u64 = template.render(&[], &ChatOptions::default()).unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now - told < 60, "{told} at {now}");
}
