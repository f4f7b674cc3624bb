//! Tests that chat templates render as by transformers (tests/data/chat/make.py).

use std::path::Path;

use inkstone::{
    Error,
    chat::{ChatOptions, ChatTemplate, Content, Document, Message, Part, Tool, ToolCall},
    gguf::Gguf,
    tokenizer::{SpecialTokens, Tokenizer},
};
use serde_json::{Value, json};

use crate::tokenizer::errors::tiny;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat").join(name)).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Converts a message of transformers' input.
pub fn message(value: &Value) -> Message {
    let content: Content = match value["content"].as_array() {
        Some(parts) => parts.iter().map(|part| Part::text(text(&part["text"]))).collect::<Vec<_>>().into(),
        None => text(&value["content"]).into(),
    };
    let mut message = Message::new(text(&value["role"]), content);
    message.reasoning = value["reasoning_content"].as_str().map(str::to_owned);
    message.name = value["name"].as_str().map(str::to_owned);
    message.tool_call_id = value["tool_call_id"].as_str().map(str::to_owned);
    message.tool_calls = value["tool_calls"].as_array().into_iter().flatten().map(call).collect();
    assert_eq!(&serde_json::to_value(&message).unwrap(), value);
    message
}

fn call(value: &Value) -> ToolCall {
    let function = &value["function"];
    let mut call = ToolCall::new(text(&function["name"]), function["arguments"].clone());
    call.id = value["id"].as_str().map(str::to_owned);
    call
}

/// Converts the tools of transformers' input.
pub fn tools(value: &Value) -> Vec<Tool> {
    let tool = |tool: &Value| Tool::new(text(&tool["name"]), text(&tool["description"]), tool["parameters"].clone());
    value.as_array().unwrap().iter().map(|value| tool(&value["function"])).collect()
}

pub fn options(case: &Value, all_tools: &Value) -> ChatOptions {
    let mut options = ChatOptions::default().add_generation_prompt(case["add_generation_prompt"].as_bool().unwrap());
    for (name, value) in case["variables"].as_object().unwrap() {
        options = match name.as_str() {
            "tools" => options.tools(tools(all_tools)),
            "documents" => {
                let documents = value.as_array().unwrap().iter();
                options.documents(documents.map(|d| Document::new(text(&d["title"]), text(&d["text"]))))
            }
            "enable_thinking" => options.enable_thinking(value.as_bool().unwrap()),
            _ => options.variable(name, value),
        };
    }
    options
}

/// Tests every operator, and the filters, tests and methods that templates use, with values of all
/// types.
#[test]
fn expressions_evaluate_as_in_jinja2() {
    let cases: Vec<[String; 2]> = serde_json::from_str(&read("expressions.json")).unwrap();
    assert!(cases.len() > 5000);
    for [source, expected] in cases {
        let template = ChatTemplate::new(&source, "", "").unwrap_or_else(|e| panic!("{source}: {e}"));
        let text = template.render(&[Message::user("")], &ChatOptions::default());
        assert_eq!(text.unwrap_or_else(|e| panic!("{source}: {e}")), expected, "{source}");
    }
}

#[test]
fn prompts_match_transformers() {
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let cases = expected["cases"].as_array().unwrap();
    assert!(cases.len() > 400);
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let template = ChatTemplate::new(&read(&format!("{name}.jinja")), "<s>", "</s>").unwrap();
        let messages: Vec<Message> = case["messages"].as_array().unwrap().iter().map(message).collect();
        let rendered = template.render(&messages, &options(case, &expected["tools"]));
        match case["prompt"].as_str() {
            Some(prompt) => assert_eq!(rendered.unwrap(), prompt, "{case}"),
            None => {
                let error = rendered.unwrap_err().to_string();
                assert!(error.contains(&text(&case["error"])) && error.contains("line "), "{error}");
            }
        }
    }
}

#[test]
fn options_that_the_template_never_reads_are_refused() {
    let refused = |options: ChatOptions| {
        let template = ChatTemplate::new(&read("chatml.jinja"), "", "").unwrap();
        template.render(&[Message::user("hello")], &options).unwrap_err().to_string()
    };
    assert!(refused(ChatOptions::default().tools([Tool::new("stop", "", json!({}))])).contains("`tools`"));
    assert!(refused(ChatOptions::default().documents([Document::new("", "")])).contains("`documents`"));
    assert!(refused(ChatOptions::default().enable_thinking(false)).contains("`enable_thinking`"));
    // Names of attributes and quoted words are not variables.
    assert!(refused(ChatOptions::default().variable("role", 1)).contains("`role`"));
    assert!(refused(ChatOptions::default().variable("im_start", 1)).contains("`im_start`"));
    let template = ChatTemplate::new(&read("chatml.jinja"), "", "").unwrap();
    assert!(["messages", "add_generation_prompt"].iter().all(|name| template.reads(name)));
    assert!(["tools", "role", "enable_thinking"].iter().all(|name| !template.reads(name)));
}

fn failure(template: Result<ChatTemplate, Error>) -> String {
    match template.and_then(|t| t.render(&[Message::user("hello")], &ChatOptions::default())) {
        Err(error @ Error::ChatTemplate(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn template_and_special_tokens_come_from_the_file() {
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
fn missing_template_error_says_what_to_do() {
    let gguf = tiny().open();
    let error = ChatTemplate::from_gguf(&gguf, &Tokenizer::from_gguf(&gguf).unwrap()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.chat_template") && error.contains("instruct"), "{error}");
}

#[test]
fn template_errors_name_the_line() {
    let fails = |source: &str| failure(ChatTemplate::new(source, "", ""));
    assert!(fails("one\n{% if %}").contains("line 2"));
    assert!(fails("one\n\n{{ messages[0].missing.deeper }}").contains("line 3"));
    assert!(fails("{% for m in messages %}\n{{ m.unknown_method() }}{% endfor %}").contains("line 2"));
    assert!(fails("{{ strftime_now('%!') }}").contains("strftime_now"));
    assert!(fails("{% include 'another' %}").contains("line 1"));
}

/// Errors quote the original source, although minijinja runs a rewritten one.
#[test]
fn template_errors_name_the_variable_and_quote_the_tag() {
    let fails = |source: &str| failure(ChatTemplate::new(source, "", ""));
    let ends = |source: &str, end: &str| {
        let error = fails(source);
        assert!(error.ends_with(end), "{error}");
    };
    ends(
        "{% for m in messages %}\n{{ 'x' ~ m.role ~ m.missing.deeper * 2 }}{% endfor %}",
        "line 2: undefined value: `m.missing` is undefined (`{{ 'x' ~ m.role ~ m.missing.deeper * 2 }}`)",
    );
    ends(
        "é{{ messages[1:] ~ 'a' }}\n\n{%- if 'b' in\n tool.name[1:] -%}{% endif %}",
        "line 4: undefined value: `tool` is undefined (`{%- if 'b' in tool.name[1:] -%}`)",
    );
    ends("{{ 'a' ~ 'b' * 2 }}{{ nothing * 2 }}", "and number (`{{ nothing * 2 }}`)");
    ends(
        "{% generation %}{{ messages[0].content + 1 }}{% endgeneration %}",
        "string and number (`{{ messages[0].content + 1 }}`)",
    );
    ends(
        &format!("{}\n{{% set x = none %}}\n{{{{ x.y.z }}}}", "long text ".repeat(9)),
        "line 3: undefined value: `x.y` is undefined (`{{ x.y.z }}`)",
    );
    let long = format!("{{{{ '{}' ~ nothing.at.all }}}}", "a".repeat(500));
    ends(&long, &format!("`nothing` is undefined (`{} …`)", &long[..80]));
    // A rejection shows only the author's message, and a limit does not belong to one tag.
    ends("{{ raise_exception('no ' ~ 'way') }}", "line 1: invalid operation: no way");
    ends("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "and may never end");
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
    let big = "{% set big = 'x' * 100000 %}";
    for multiplied in
        ["big | replace('x', big)", "big.replace('x', big)", "([big] * 9999) | join(',')", "','.join([big] * 9999)"]
    {
        assert!(
            fails(&format!("{big}{{{{ ({multiplied}) | length }}}}")).contains("longer than 64 MB"),
            "{multiplied}"
        );
    }
    let doubled = "{% set ns = namespace(x=['x']) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    assert!(fails(&format!("{doubled}{{{{ ns.x }}}}")).contains("too long"));
    assert!(
        fails(&format!("{big}{{% for i in range(9999) %}}{{{{ big }}}}{{% endfor %}}")).contains("writes more than")
    );
    fails(&"{% if true %}".repeat(10_000));
    fails(&format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000)));
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}";
    assert!(fails(&format!("{nested}{{{{ ns.x }}}}")).contains("nested too deeply"));
}

#[test]
fn strftime_now_formats_the_current_time() {
    let template = ChatTemplate::new("{{ strftime_now('%s') }}", "", "").unwrap();
    let told: u64 = template.render(&[], &ChatOptions::default()).unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now - told < 60, "{told} at {now}");
}
