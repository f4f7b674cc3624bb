//! Tests of the check of calls against the offered tools.

use inkstone::{
    Error,
    chat::{AnswerEvent, AnswerParser, CallForm, ChatOptions, ChatTemplate, Tool, ToolCall, ToolChoice},
};
use serde_json::{Value, json};

pub fn tools() -> [Tool; 2] {
    let weather = json!({
        "type": "object",
        "properties": {
            "place": { "type": "string", "maxLength": 8 },
            "days": { "$ref": "#/$defs/days" },
            "unit": { "enum": ["C", "F"] },
            "hours": { "type": "array", "items": { "type": "integer" }, "maxItems": 3 },
        },
        "required": ["place"],
        "additionalProperties": false,
        "$defs": { "days": { "type": "integer", "minimum": 1, "maximum": 7 } },
    });
    [Tool::new("weather", "The weather", weather), Tool::new("stop", "Stops", json!({ "type": "object" }))]
}

pub fn offered() -> ChatOptions {
    ChatOptions::default().tools(tools())
}

fn parser(options: ChatOptions, form: CallForm) -> AnswerParser {
    ChatTemplate::new("{{ tools }}", "", "").unwrap().parser(&options.call_form(form), "").unwrap()
}

fn events(options: ChatOptions, form: CallForm, answer: &str) -> Vec<Result<AnswerEvent, Error>> {
    let mut parser = parser(options, form);
    let mut events = parser.push(answer);
    events.extend(parser.finish());
    events
}

/// Returns a call in each format, with arguments in the syntax of that format. The last format
/// takes one call after the other.
fn written(form: CallForm, name: &str, json: &str, tags: &str, python: &str, gemma: &str) -> String {
    match form {
        CallForm::TaggedJson => format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {json}}}\n</tool_call>"),
        CallForm::Parameters => format!("<tool_call>\n<function={name}>\n{tags}</function>\n</tool_call>"),
        CallForm::Json => format!("<|python_tag|>{{\"name\": \"{name}\", \"parameters\": {json}}}"),
        CallForm::Pythonic => format!("[stop(), {name}({python})]"),
        CallForm::ToolCode => format!("```tool_code\n{name}({python})\n```"),
        CallForm::Gemma4 => format!("<|tool_call>call:{name}{gemma}<tool_call|>"),
        CallForm::FunctionGemma => {
            format!("<start_function_call>call:{name}{}<end_function_call>", gemma.replace("<|\"|>", "<escape>"))
        }
        CallForm::Mistral => format!("[TOOL_CALLS]{name}[ARGS]{json}"),
        CallForm::Glm => {
            let pairs = tags.replace("\n</parameter>\n", "</arg_value>").replace("<parameter=", "<arg_key>");
            format!("<tool_call>{name}\n{}</tool_call>", pairs.replace(">\n", "</arg_key><arg_value>"))
        }
        CallForm::MiniMax => {
            let tags = tags.replace("\n</parameter>\n", "</parameter>").replace("<parameter=", "<parameter name=\"");
            let tags = tags.replace(">\n", "\">");
            format!("<minimax:tool_call>\n<invoke name=\"{name}\">{tags}</invoke>\n</minimax:tool_call>")
        }
        CallForm::DeepSeek => {
            let call = format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json}<｜tool▁call▁end｜>");
            format!("<｜tool▁calls▁begin｜>{call}<｜tool▁calls▁end｜>")
        }
        CallForm::KimiK2 => {
            let call =
                format!("<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{json}<|tool_call_end|>");
            format!("<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>")
        }
        CallForm::Cohere => {
            format!("<|START_ACTION|>[{{\"tool_name\": \"{name}\", \"parameters\": {json}}}]<|END_ACTION|>")
        }
        CallForm::Granite => format!("<|tool_call|>[{{\"name\": \"{name}\", \"arguments\": {json}}}]"),
        CallForm::Lfm2 => format!("<|tool_call_start|>[stop(), {name}({python})]<|tool_call_end|>"),
        other => panic!("{other:?}"),
    }
}

pub const FORMS: [CallForm; 15] = [
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

#[test]
fn invalid_calls_are_errors_with_the_call() {
    let days = |text: &str| format!("<parameter=place>\nOslo\n</parameter>\n<parameter=days>\n{text}\n</parameter>\n");
    for form in FORMS {
        let check = |name: &str, arguments: Value, call: String, wanted: &str| {
            let found = events(offered(), form, &call);
            match found.last().unwrap() {
                Err(error @ Error::ToolCall { call: Some(call), text, .. }) => {
                    let mut expected = ToolCall::new(name, arguments);
                    // Calls of some formats have an identifier.
                    expected.id.clone_from(&call.id);
                    assert_eq!(**call, expected, "{form:?}");
                    assert!(error.to_string().contains(wanted) && text.contains(name), "{form:?}: {error}");
                }
                other => panic!("{form:?}: {other:?}"),
            }
        };
        let call = |name: &str, json: &str, tags: &str, python: &str, gemma: &str| {
            written(form, name, json, tags, python, gemma)
        };
        // Without an opening mark, a call of an unknown tool is text.
        if form != CallForm::Pythonic {
            check(
                "wether",
                json!({}),
                call("wether", "{}", "", "", "{}"),
                "not among the tools offered: `weather`, `stop`",
            );
        }
        check(
            "weather",
            json!({}),
            call("weather", "{}", "", "", "{}"),
            "does not fit `weather`: argument `place` is missing",
        );
        check(
            "weather",
            json!({ "place": "Oslo", "days": "two" }),
            call(
                "weather",
                r#"{"place": "Oslo", "days": "two"}"#,
                &days("two"),
                "place='Oslo', days='two'",
                "{place:<|\"|>Oslo<|\"|>,days:<|\"|>two<|\"|>}",
            ),
            "argument `days` must be of type integer, but is `\"two\"`",
        );
        check(
            "weather",
            json!({ "place": "Oslo", "days": 8 }),
            call(
                "weather",
                r#"{"place": "Oslo", "days": 8}"#,
                &days("8"),
                "place='Oslo', days=8",
                "{place:<|\"|>Oslo<|\"|>,days:8}",
            ),
            "argument `days` must be at most 7, but is 8",
        );
        check(
            "weather",
            json!({ "place": "Oslo", "wind": "mild" }),
            call(
                "weather",
                r#"{"place": "Oslo", "wind": "mild"}"#,
                "<parameter=place>\nOslo\n</parameter>\n<parameter=wind>\nmild\n</parameter>\n",
                "place='Oslo', wind='mild'",
                "{place:<|\"|>Oslo<|\"|>,wind:<|\"|>mild<|\"|>}",
            ),
            "argument `wind` is not known: known are `place`, `days`, `unit`, `hours`",
        );
    }
}

#[test]
fn answer_continues_after_an_invalid_call() {
    let wrong = "Hm.<tool_call>{\"name\": \"weather\"}</tool_call><tool_call>{\"name\": \"stop\"}</tool_call>So.";
    let found = events(offered(), CallForm::TaggedJson, wrong);
    assert!(
        matches!(
            found.as_slice(),
            [
                Ok(AnswerEvent::Text(_)),
                Err(Error::ToolCall { .. }),
                Ok(AnswerEvent::ToolCall(_)),
                Ok(AnswerEvent::Text(_))
            ]
        ),
        "{found:?}"
    );
}

#[test]
fn calls_are_checked_against_the_tool_choice() {
    let both = "<tool_call>{\"name\": \"stop\"}</tool_call>\n<tool_call>{\"name\": \"stop\"}</tool_call>";
    let wrong = |options: ChatOptions| {
        let found =
            events(options, CallForm::TaggedJson, both).into_iter().map(|event| event.map_err(|e| e.to_string()));
        found.map(Result::err).collect::<Vec<_>>()
    };
    assert_eq!(wrong(offered()), [None, None]);
    let single = wrong(offered().parallel_tool_calls(false));
    assert!(single[0].is_none() && single[1].as_ref().unwrap().contains("parallel"), "{single:?}");
    let named = wrong(offered().tool_choice(ToolChoice::named("weather")));
    assert!(named.iter().flatten().all(|what| what.contains("the choice of tools is `weather`")) && named.len() == 2);
    let none = wrong(offered().tool_choice(ToolChoice::None));
    assert!(none.iter().flatten().all(|what| what.contains("`None`")) && none.len() == 2);
}

/// Values in tags are text; the schema determines their types.
#[test]
fn tagged_values_are_typed_by_the_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "level": { "enum": [1, 2, "high"] },
            "referred": { "$ref": "#/$defs/count" },
            "all": { "allOf": [{ "type": "array" }, { "items": { "type": "boolean" } }] },
            "union": { "anyOf": [{ "type": "integer", "minimum": 10 }, { "type": "string" }] },
        },
        "$defs": { "count": { "type": "integer" } },
    });
    let options = ChatOptions::default().tools([Tool::new("set", "", schema)]);
    let read = |key: &str, text: &str| {
        let answer = format!("<tool_call><function=set><parameter={key}>\n{text}\n</parameter></function></tool_call>");
        match events(options.clone(), CallForm::Parameters, &answer).remove(0) {
            Ok(AnswerEvent::ToolCall(call)) => call.arguments[key].clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read("level", "2"), json!(2));
    assert_eq!(read("level", "high"), json!("high"));
    assert_eq!(read("referred", "-3"), json!(-3));
    assert_eq!(read("all", "[true, false]"), json!([true, false]));
    assert_eq!(read("union", "12"), json!(12));
    assert_eq!(read("union", "9"), json!("9"));
}

#[test]
fn unusable_tools_and_choices_are_refused() {
    let template = ChatTemplate::new("{{ tools }}", "", "").unwrap();
    let refused = |options: ChatOptions, argument: &str, named: &str| match template
        .parser(&options.call_form(CallForm::TaggedJson), "")
    {
        Err(Error::Argument { name, what }) => assert!(name == argument && what.contains(named), "{name}: {what}"),
        other => panic!("{other:?}"),
    };
    let tool = |schema: Value| ChatOptions::default().tools([Tool::new("f", "", schema)]);
    refused(tool(json!({ "properties": { "a": { "type": "text" } } })), "tools", "`/properties/a/type`");
    refused(tool(json!({ "$ref": "#/$defs/gone" })), "tools", "`#/$defs/gone`");
    refused(tool(json!({ "pattern": "(?<=a)b" })), "tools", "look-around");
    refused(ChatOptions::default().tools([tools(), tools()].concat()), "tools", "offered twice");
    refused(offered().tool_choice(ToolChoice::named("wether")), "tool_choice", "`weather`, `stop`");
    refused(ChatOptions::default().tool_choice(ToolChoice::Required), "tool_choice", "no tools are offered");
    assert!(template.parser(&tool(Value::Null).call_form(CallForm::TaggedJson), "").is_ok());
}
