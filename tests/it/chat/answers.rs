//! Tests of the answer parser, against transformers' parser and Python (tests/data/chat/answers.py)
//! and against calls that templates render.

use std::{fs, path::Path};

use inkstone::{
    Error,
    chat::{AnswerEvent, AnswerParser, CallForm, ChatOptions, ChatTemplate, Tool, ToolCall},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::render::{message, tools};

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat").join(name)).unwrap()
}

/// Returns a template that shows a call format.
fn template(form: &str) -> ChatTemplate {
    let source = match form {
        "TaggedJson" => read("thinking.jinja"),
        "Parameters" => read("parameters.jinja"),
        "Gemma4" => read("channels.jinja"),
        "Json" => read("headers.jinja"),
        "Mistral" => read("brackets.jinja") + "{# [THINK] #}",
        "FunctionGemma" => "{{ tools }}<start_function_call>call:".to_owned(),
        "Pythonic" => "{{ tools }}[func_name1(a=1)]".to_owned(),
        "ToolCode" => "{{ tools }}```tool_code".to_owned(),
        other => panic!("{other}"),
    };
    ChatTemplate::new(&source, "<s>", "</s>").unwrap()
}

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq)]
struct Whole {
    reasoning: String,
    text: String,
    calls: Vec<ToolCall>,
    /// The reasons and texts of its invalid calls.
    wrong: Vec<(String, String)>,
}

impl Whole {
    fn extend(&mut self, events: Vec<Result<AnswerEvent, Error>>) {
        for event in events {
            match event {
                Ok(AnswerEvent::Reasoning(text)) => self.reasoning += &text,
                Ok(AnswerEvent::Text(text)) => self.text += &text,
                Ok(AnswerEvent::ToolCall(call)) => self.calls.push(call),
                Err(Error::ToolCall { what, text, .. }) => self.wrong.push((what, text)),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Parses an answer in pieces of these lengths, in turn.
fn parse(mut parser: AnswerParser, answer: &str, lengths: &[usize]) -> Whole {
    let mut whole = Whole::default();
    let mut chars = answer.chars().peekable();
    for &length in lengths.iter().cycle() {
        if chars.peek().is_none() {
            break;
        }
        let piece: String = chars.by_ref().take(length).collect();
        whole.extend(parser.push(&piece));
    }
    whole.extend(parser.finish());
    assert!(parser.finish().is_empty());
    whole
}

/// Reads the cases of answers.json: the parser, the answer and the expected message.
fn cases() -> Vec<(AnswerParser, String, Value)> {
    let expected: Value = serde_json::from_str(&read("answers.json")).unwrap();
    let options = ChatOptions::default().tools(tools(&expected["tools"]));
    let case = |case: &Value| {
        let parser =
            template(case["form"].as_str().unwrap()).parser(&options, case["prompt"].as_str().unwrap()).unwrap();
        (parser, case["answer"].as_str().unwrap().to_owned(), case["message"].clone())
    };
    expected["cases"].as_array().unwrap().iter().map(case).collect()
}

#[test]
fn events_match_transformers_parsed_answers() {
    assert!(cases().len() > 15);
    for (parser, answer, message) in cases() {
        let whole = parse(parser, &answer, &[usize::MAX]);
        assert_eq!(whole.reasoning, message["reasoning_content"].as_str().unwrap_or_default(), "{answer}");
        assert_eq!(whole.text.trim(), message["content"].as_str().unwrap_or_default(), "{answer}");
        let calls = serde_json::to_value(&whole.calls).unwrap();
        assert_eq!(&calls, message.get("tool_calls").unwrap_or(&json!([])), "{answer}");
        assert_eq!(whole.wrong, []);
    }
}

/// Conversations with calls, rendered by transformers, are parsed back into the same calls.
#[test]
fn calls_that_templates_render_are_parsed() {
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let options = ChatOptions::default().tools(tools(&expected["tools"]));
    let forms = [
        ("thinking", "TaggedJson", "<|im_start|>assistant\n", "<|im_end|>"),
        ("parameters", "Parameters", "<|im_start|>assistant\n", "<|im_end|>"),
        ("channels", "Gemma4", "<|turn>model\n", "<|tool_response>"),
        ("headers", "Json", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
        ("brackets", "Mistral", "[/INST]", "</s>"),
    ];
    for (name, form, begin, end) in forms {
        let mut read_back = 0;
        for case in expected["cases"].as_array().unwrap().iter().filter(|case| case["template"] == name) {
            let Some(prompt) = case["prompt"].as_str().filter(|_| case["variables"].get("tools").is_some()) else {
                continue;
            };
            let messages = case["messages"].as_array().unwrap().iter().map(message);
            let Some(message) = messages.into_iter().find(|message| !message.tool_calls.is_empty()) else { continue };
            let (_, answer) = prompt.split_once(begin).unwrap();
            let (answer, _) = answer.split_once(end).unwrap();
            let whole = parse(template(form).parser(&options, begin).unwrap(), answer, &[3]);
            let calls =
                |calls: &[ToolCall]| calls.iter().map(|c| (c.name.clone(), c.arguments.clone())).collect::<Vec<_>>();
            assert_eq!(calls(&whole.calls), calls(&message.tool_calls), "{answer}");
            assert_eq!(whole.wrong, []);
            read_back += 1;
        }
        assert!(read_back > 0, "{name}");
    }
}

/// Answers as the template of gpt-oss writes them into the next prompt, and as the model writes
/// them: the end of the prompt, the answer, its reasoning, text and calls.
#[test]
fn messages_of_gpt_oss_are_split_by_channel() {
    const PROMPT: &str = "<|end|><|start|>assistant";
    type Calls = &'static [(&'static str, &'static str)];
    let cases: [(&str, &str, &str, &str, Calls); 9] = [
        ("", "<|channel|>final<|message|>It is 4.", "", "It is 4.", &[]),
        (
            "",
            "<|channel|>analysis<|message|>A sum.\n2 + 2.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|return|>",
            "A sum.\n2 + 2.",
            "It is 4.",
            &[],
        ),
        (
            "",
            "<|channel|>analysis<|message|>Stop.<|end|><|start|>assistant to=functions.stop<|channel|>commentary \
             json<|message|>{\"n\": 1}<|call|>",
            "Stop.",
            "",
            &[("stop", "{\"n\":1}")],
        ),
        (
            "",
            "<|channel|>commentary to=functions.store <|constrain|>json<|message|>{\"n\":-2}",
            "",
            "",
            &[("store", "{\"n\":-2}")],
        ),
        (
            "",
            "<|channel|>commentary<|message|>Two steps.<|end|><|start|>assistant<|channel|>commentary \
             to=functions.stop<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.store \
             <|constrain|>json<|message|>{\"n\": 3}<|call|><|start|>assistant<|channel|>final<|message|>Done.",
            "",
            "Two steps.\n\nDone.",
            &[("stop", "{}"), ("store", "{\"n\":3}")],
        ),
        (
            "<|channel|>analysis<|message|>",
            "Hm.<|end|><|start|>assistant<|channel|>final<|message|>a < b",
            "Hm.",
            "a < b",
            &[],
        ),
        ("<|channel|>final<|message|>", "Yes<|return|>", "", "Yes", &[]),
        ("<|channel|>", "final<|message|>Yes", "", "Yes", &[]),
        ("", "{\"n\": 4}", "", "{\"n\": 4}", &[]),
    ];
    let source = "{{ tools }}<|start|>assistant<|channel|>analysis<|message|> to=functions.";
    let template = ChatTemplate::new(source, "", "").unwrap();
    for (begun, answer, reasoning, text, calls) in cases {
        let parser = template.parser(&options(), &format!("{PROMPT}{begun}")).unwrap();
        let marks = ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"];
        assert!(marks.iter().all(|mark| parser.reads(mark)) && !parser.reads("<|endoftext|>"));
        for lengths in [&[usize::MAX][..], &[1], &[3, 1, 7]] {
            let whole = parse(parser.clone(), answer, lengths);
            assert_eq!((whole.reasoning.as_str(), whole.text.as_str()), (reasoning, text), "{answer}");
            let calls_of = |c: &ToolCall| (c.name.clone(), json!(c.arguments).to_string());
            let found: Vec<_> = whole.calls.iter().map(calls_of).collect();
            let wanted: Vec<_> =
                calls.iter().map(|(name, arguments)| (name.to_string(), arguments.to_string())).collect();
            assert_eq!(found, wanted, "{answer}");
            assert_eq!(whole.wrong, []);
        }
    }
    // Arguments that are not JSON, a function that is not offered, and calls without tools.
    let of = |options: &ChatOptions, answer: &str| parse(template.parser(options, PROMPT).unwrap(), answer, &[5]);
    let cut = of(&options(), "<|channel|>commentary to=functions.stop<|message|>{\"n\": ");
    assert!(cut.wrong[0].1.contains("to=functions.stop<|message|>{\"n\": "), "{cut:?}");
    let other = of(
        &options(),
        "<|channel|>analysis to=python<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>x",
    );
    assert!(other.wrong.len() == 1 && other.text == "x", "{other:?}");
    let none = of(&ChatOptions::default(), "<|channel|>commentary to=functions.stop<|message|>{}<|call|>");
    assert_eq!((none.text.as_str(), none.wrong.len()), ("{}", 0));
}

fn options() -> ChatOptions {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    ChatOptions::default().tools([Tool::new("stop", "Stops", schema.clone()), Tool::new("store", "Stores", schema)])
}

/// Answers with malformed calls: the call format, the answer, the reason, the call's text, and the
/// answer's text after it.
const WRONG: [(&str, &str, &str, &str, &str); 14] = [
    (
        "TaggedJson",
        "<tool_call>{\"name\": }</tool_call>So.",
        "is not JSON",
        "<tool_call>{\"name\": }</tool_call>",
        "So.",
    ),
    (
        "TaggedJson",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "missing field `name`",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "",
    ),
    (
        "TaggedJson",
        "<tool_call>{\"name\": \"stop\", \"arguments\": [1]}</tool_call>",
        "not an object",
        "<tool_call>{\"name\": \"stop\", \"arguments\": [1]}</tool_call>",
        "",
    ),
    ("TaggedJson", "<tool_call>{\"name\": \"sto", "is not finished", "<tool_call>{\"name\": \"sto", ""),
    ("TaggedJson", "<tool_call>{\"name: 1}</tool_call>So.", "is not JSON", "<tool_call>{\"name: 1}</tool_call>", "So."),
    (
        "TaggedJson",
        "<tool_call>{\"name\": \"\\ud800\"}</tool_call>",
        "is not JSON",
        "<tool_call>{\"name\": \"\\ud800\"}</tool_call>",
        "",
    ),
    ("Parameters", "<tool_call>stop</tool_call>", "lacks a `<function=`", "<tool_call>stop</tool_call>", ""),
    (
        "Parameters",
        "<tool_call><function=stop><parameter=n>many</parameter></function></tool_call>",
        "of type integer",
        "<tool_call><function=stop><parameter=n>many</parameter></function></tool_call>",
        "",
    ),
    ("Json", "<|python_tag|>print(1)\nSo.", "is not JSON", "<|python_tag|>print(1)", "So."),
    (
        "Json",
        "{\"name\": \"stop\", \"parameters\": {,}} So.",
        "is not JSON",
        "{\"name\": \"stop\", \"parameters\": {,}}",
        "So.",
    ),
    ("Pythonic", "[stop(1)]", "without the name", "[stop(1)]", ""),
    ("Gemma4", "<|tool_call>call:stop{n:}<tool_call|>", "lacks a value", "<|tool_call>call:stop{n:}<tool_call|>", ""),
    ("Mistral", "[TOOL_CALLS]stop[ARGS]{1}So.", "not a JSON object", "[TOOL_CALLS]stop[ARGS]{1}", "So."),
    ("ToolCode", "```tool_code\nstop(n=1", "is not finished", "```tool_code\nstop(n=1", ""),
];

#[test]
fn malformed_calls_give_an_error_with_the_reason() {
    for (form, answer, what, text, after) in WRONG {
        let whole = parse(template(form).parser(&options(), "").unwrap(), answer, &[usize::MAX]);
        let [(wrong, of)] = whole.wrong.as_slice() else { panic!("{answer}: {whole:?}") };
        assert!(wrong.contains(what), "{answer}: {wrong}");
        assert_eq!((of.as_str(), whole.text.as_str(), whole.calls.len()), (text, after, 0));
    }
    let deep = format!("<|tool_call>call:stop{{n:{}}}<tool_call|>", "[".repeat(100_000));
    assert!(
        parse(template("Gemma4").parser(&options(), "").unwrap(), &deep, &[usize::MAX]).wrong[0].0.contains("deep")
    );
}

/// Tests answers that only look like calls.
#[test]
fn answers_similar_to_calls_are_text() {
    let same = [
        ("Json", "{\"name\": \"Bob\", \"age\": 3}"),
        ("Json", "{ \"a\": [1] }\n"),
        ("Json", "\n {"),
        ("Pythonic", "[1, 2] is a list"),
        ("Pythonic", "[stopped](a) is a link"),
        ("Pythonic", "[sto"),
        ("TaggedJson", "a < b, <tool, <tool_call"),
        ("TaggedJson", "the mark <think> begins thoughts"),
        ("Gemma4", " white space \n"),
    ];
    for (form, answer) in same {
        let whole = parse(template(form).parser(&options(), "").unwrap(), answer, &[usize::MAX]);
        assert_eq!(whole, Whole { text: answer.to_owned(), ..Whole::default() });
    }
    // Without tools, all answers are text.
    let answer = "<tool_call>{}</tool_call>";
    let whole = parse(template("TaggedJson").parser(&ChatOptions::default(), "").unwrap(), answer, &[usize::MAX]);
    assert_eq!(whole, Whole { text: answer.to_owned(), ..Whole::default() });
}

#[test]
fn several_llama_calls_are_parsed() {
    let answer = "{\"name\": \"stop\", \"parameters\": {\"n\": 1}}; {\"type\": \"function\", \"name\": \"store\", \"parameters\": \"{}\"}";
    let whole = parse(template("Json").parser(&options(), "").unwrap(), answer, &[2]);
    assert_eq!(whole.calls, [ToolCall::new("stop", json!({"n": 1})), ToolCall::new("store", json!({}))]);
    assert_eq!((whole.text.as_str(), whole.wrong.len()), ("", 0));
}

#[test]
fn call_form_comes_from_the_template_or_the_options() {
    let template = ChatTemplate::new("{{ tools }}", "", "").unwrap();
    let error = template.parser(&options(), "").unwrap_err().to_string();
    assert!(error.contains("call_form"), "{error}");
    let parser = template.parser(&options().call_form(CallForm::Pythonic), "").unwrap();
    assert_eq!(parse(parser, "[stop()]", &[usize::MAX]).calls, [ToolCall::new("stop", json!({}))]);
}

#[test]
fn parser_reads_special_tokens_of_its_marks() {
    let reads = |form: &str, token: &str| template(form).parser(&options(), "").unwrap().reads(token);
    assert!(reads("Gemma4", "<|tool_call>") && reads("Gemma4", "<|\"|>") && reads("Gemma4", "<|channel>"));
    assert!(reads("Json", "<|python_tag|>") && reads("Mistral", "[ARGS]") && reads("Mistral", "[THINK]"));
    assert!(!reads("Json", "<|eot_id|>") && !reads("Gemma4", "<turn|>"));
    assert!(!template("Gemma4").parser(&ChatOptions::default(), "").unwrap().reads("<|tool_call>"));
}

fn hostile_answer() -> impl Strategy<Value = String> {
    let words = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"stop\"",
        ", \"arguments\": {",
        "}",
        "\"",
        "\\",
        "\n",
        " ",
        "a",
        "\0",
        "é",
        "<function=stop>",
        "<parameter=n>",
        "</parameter>",
        "</function>",
        "[",
        "]",
        "stop",
        "(",
        ")",
        "n=",
        "'",
        "```",
        "```tool_code",
        "<|tool_call>",
        "<tool_call|>",
        "call:stop{",
        "<|\"|>",
        "<|channel>thought",
        "<channel|>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "<|python_tag|>",
        "{\"name\":\"stop\",\"parameters\":{",
        ";",
        "1",
        ":",
        ",",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..24).prop_map(|words| words.concat())
}

proptest! {
    /// The events do not depend on the pieces of the answer.
    #[test]
    fn events_do_not_depend_on_the_pieces_of_hostile_answers(answer in hostile_answer(), lengths in prop::collection::vec(1usize..6, 1..6)) {
        for form in ["TaggedJson", "Parameters", "Gemma4", "Json", "Mistral", "FunctionGemma", "Pythonic", "ToolCode"] {
            let parser = template(form).parser(&options(), "").unwrap();
            let whole = parse(parser.clone(), &answer, &[usize::MAX]);
            prop_assert_eq!(parse(parser, &answer, &lengths), whole, "{}: {:?}", form, answer);
        }
    }

    #[test]
    fn events_do_not_depend_on_the_pieces_of_valid_answers(lengths in prop::collection::vec(1usize..9, 1..6)) {
        let wrong = WRONG.iter().map(|(form, answer, ..)| (template(form).parser(&options(), "").unwrap(), (*answer).to_owned()));
        for (parser, answer) in cases().into_iter().map(|(parser, answer, _)| (parser, answer)).chain(wrong) {
            let whole = parse(parser.clone(), &answer, &[usize::MAX]);
            prop_assert_eq!(parse(parser, &answer, &lengths), whole, "{:?}", answer);
        }
    }
}
