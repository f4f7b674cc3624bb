//! Tests of answers with tool calls: invalid calls, and answers constrained by a tool choice.

use inkstone::{
    Error, Message, Runner,
    chat::{ChatOptions, Tool, ToolCall, ToolChoice},
};
use serde_json::json;

use super::tool_calls::offered;
use crate::support::{
    gguf_file::Folder,
    on_cpu,
    tiny::{MODELS, with_template},
};

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\
    {% for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\
    </tool_call>{% endfor %}<|im_end|>\n{% endfor %}{{ tools | length if tools }}<|im_start|>assistant\n\
    {% if open %}<think>{% elif open is false %}<think></think>{% endif %}{# -#}";

fn runner(folder: &Folder) -> Runner {
    let path = folder.write("tools.gguf", with_template(MODELS[0], TEMPLATE));
    on_cpu().from_gguf(path).unwrap()
}

mod driven {
    //! Answers of a model whose output a test determines.

    use inkstone::{Answer, GenerateOptions, SamplerOptions, tokenizer::SpecialTokens};

    use super::*;

    pub fn greedy() -> GenerateOptions {
        GenerateOptions { sampler: SamplerOptions::greedy(), max_tokens: Some(400), ..Default::default() }
    }

    /// Returns the answer of a model to which these tokens are by far the most probable, as long as
    /// it generates no others.
    pub fn wanting<'a>(runner: &'a mut Runner, chat: &ChatOptions, text: &str) -> inkstone::Result<Answer<'a>> {
        let tokenizer = runner.tokenizer().clone();
        let mut wanted = tokenizer.encode(text, SpecialTokens::Plain).unwrap();
        wanted.push(tokenizer.end_of_generation()[0]);
        let answer = runner.chat_with(&[Message::user("How is it?")], chat, &greedy())?;
        let prompt = answer.generation().prompt().len();
        Ok(answer.with_processor(move |ids: &[u32], logits: &mut [f32]| {
            let said = &ids[prompt..];
            if let Some(&id) = wanted.get(said.len()).filter(|_| wanted.starts_with(said)) {
                logits[id as usize] += 1e4;
            }
            Ok(())
        }))
    }
}

#[test]
fn invalid_call_is_in_the_message_and_its_error_can_be_sent_back() {
    let folder = Folder::new();
    let mut runner = runner(&folder);
    let tokenizer = runner.tokenizer().clone();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "multipleOf": 2 } } });
    let chat = ChatOptions::default().tools([Tool::new("pairs", "", schema)]);
    let said = "<tool_call>{\"name\": \"pairs\", \"arguments\": {\"n\": 3}}</tool_call>";
    let mut answer = driven::wanting(&mut runner, &chat, said).unwrap();
    let error = answer.events().find_map(Result::err).unwrap();
    let Error::ToolCall { what, call: Some(call), .. } = &error else { panic!("{error}") };
    assert_eq!(what, "does not fit `pairs`: argument `n` must be a multiple of 2, but is 3");
    let message = answer.message();
    assert_eq!(message, Message::assistant("").with_tool_calls([ToolCall::new("pairs", json!({ "n": 3 }))]));
    let messages = [Message::user("How is it?"), message, Message::tool(&call.name, error.to_string())];
    let prompt = runner.chat_with(&messages, &chat, &driven::greedy()).unwrap().generation().prompt().to_vec();
    let bytes: Vec<u8> = prompt.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec()).collect();
    let prompt = String::from_utf8(bytes).unwrap();
    assert!(
        prompt.contains("{\"n\": 3}}</tool_call>") && prompt.contains("tool\nthe tool call does not fit"),
        "{prompt}"
    );
}

#[cfg(feature = "async")]
#[test]
fn asynchronous_answer_includes_invalid_calls() {
    use futures::{StreamExt, executor::block_on};
    use inkstone::{AsyncRunner, chat::CallForm};

    let folder = Folder::new();
    let runner = runner(&folder);
    let tokenizer = runner.tokenizer().clone();
    let chat = ChatOptions::default().tools([Tool::new("f", "", json!({ "required": ["a"] }))]);
    // A model that can only generate these characters soon generates a call, and few other texts
    // end.
    let mut options = driven::greedy();
    let call = tokenizer.encode("[f()]", inkstone::tokenizer::SpecialTokens::Plain).unwrap();
    options.sampler.logit_bias = call.iter().zip([5e4, 4e4, 3e4, 2e4, 1e4]).map(|(&id, bias)| (id, bias)).collect();
    options.sampler.presence_penalty = 9e4;
    options.max_tokens = Some(call.len());
    let runner = AsyncRunner::new(runner).unwrap();
    block_on(async {
        let mut answer = runner.chat_with(&[Message::user("Go")], &chat.call_form(CallForm::Pythonic), &options);
        let events: Vec<_> = answer.events().collect().await;
        let wrong = events.iter().find_map(|event| match event {
            Err(Error::ToolCall { call: Some(call), .. }) => Some((**call).clone()),
            _ => None,
        });
        assert_eq!(wrong, Some(ToolCall::new("f", json!({}))), "{events:?}");
        assert_eq!(answer.message().tool_calls, [ToolCall::new("f", json!({}))]);
    });
}

#[cfg(not(feature = "constrained"))]
#[test]
fn forced_calls_without_the_feature_are_refused() {
    let folder = Folder::new();
    let mut runner = runner(&folder);
    for choice in [ToolChoice::Required, ToolChoice::named("stop")] {
        let error = driven::wanting(&mut runner, &offered().tool_choice(choice), "So.").unwrap_err();
        assert!(
            matches!(&error, Error::Argument { name: "tool_choice", what } if what.contains("`constrained`")),
            "{error}"
        );
    }
    assert!(driven::wanting(&mut runner, &offered().tool_choice(ToolChoice::None), "So.").is_ok());
}

#[cfg(feature = "constrained")]
mod held {
    //! Answers that are constrained by a tool choice.

    use inkstone::{
        GenerateOptions, SamplerOptions, StopReason,
        chat::{AnswerEvent, CallForm, Content},
    };

    use super::{driven::wanting, *};
    use crate::chat::tool_calls::FORMS;

    /// Returns the answer as a message; panics if one of its calls is invalid.
    fn answer(runner: &mut Runner, chat: &ChatOptions, wanted: &str) -> Message {
        let mut answer = wanting(runner, chat, wanted).unwrap();
        answer.events().for_each(|event| _ = event.unwrap());
        answer.message()
    }

    fn text(message: &Message) -> &str {
        match &message.content {
            Content::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn required_call_is_generated_against_the_models_choice() {
        let folder = Folder::new();
        let mut runner = runner(&folder);
        for wanted in
            ["I would rather not.", "<tool_call>{\"name\": \"wether\"", "\n\n<tool_call>{\"name\": \"stop\"", "{"]
        {
            let message =
                answer(&mut runner, &offered().tool_choice(ToolChoice::Required).parallel_tool_calls(false), wanted);
            assert!(message.tool_calls.len() == 1 && text(&message).is_empty(), "{wanted:?}: {message:?}");
            let message = answer(&mut runner, &offered().tool_choice(ToolChoice::named("weather")), wanted);
            assert!(message.tool_calls.iter().all(|call| call.name == "weather"), "{message:?}");
        }
        let wanted =
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"Oslo\", \"days\": 3}}\n</tool_call>";
        let both = format!("{wanted}\n{wanted}");
        let several = answer(&mut runner, &offered().tool_choice(ToolChoice::Required), &both);
        let call = ToolCall::new("weather", json!({ "place": "Oslo", "days": 3 }));
        assert_eq!(several.tool_calls, [call.clone(), call.clone()]);
        let single =
            answer(&mut runner, &offered().tool_choice(ToolChoice::Required).parallel_tool_calls(false), &both);
        assert_eq!(single.tool_calls, [call]);
    }

    #[test]
    fn auto_choice_constrains_only_after_a_call_begins() {
        let folder = Folder::new();
        let mut runner = runner(&folder);
        let auto = offered().tool_choice(ToolChoice::Auto);
        let plain = answer(&mut runner, &auto, "It is <b>fair</b>: {\"name\": 1} <tool_cal");
        assert_eq!((text(&plain), plain.tool_calls.len()), ("It is <b>fair</b>: {\"name\": 1} <tool_cal", 0));
        let said = "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 9";
        let called = answer(&mut runner, &auto, said);
        assert_eq!(text(&called), "Let me see.");
        assert!(
            called.tool_calls[0].name == "weather" && called.tool_calls[0].arguments["place"].is_string(),
            "{called:?}"
        );
        let none = answer(&mut runner, &offered().tool_choice(ToolChoice::None), said);
        assert!(none.tool_calls.is_empty() && text(&none).starts_with("Let me see.\n<tool_call"), "{none:?}");
    }

    #[test]
    fn reasoning_before_calls_is_unconstrained() {
        let folder = Folder::new();
        let mut runner = runner(&folder);
        let call = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
        for choice in [ToolChoice::Auto, ToolChoice::Required] {
            let options = offered().tool_choice(choice.clone()).parallel_tool_calls(false);
            let thinks = |open: bool| options.clone().variable("open", open);
            for (chat, wanted) in [
                (thinks(true), format!("I could <tool_call> here.\n</think>\n\n{call}")),
                (options.clone(), format!("<think>\nI could <tool_call> here.\n</think>\n\n{call}")),
                (options.clone(), format!("\n<think>\nI could <tool_call> here.\n</think>{call}")),
                (thinks(false), format!("\n{call}")),
            ] {
                if choice == ToolChoice::Required && wanted.starts_with("\n<think>") {
                    continue; // White space comes before the first thought only where the form has room for it.
                }
                let message = answer(&mut runner, &chat, &wanted);
                let thought = message.reasoning.clone().unwrap_or_default();
                assert_eq!(thought.is_empty(), !wanted.contains("could"), "{choice:?}, {wanted:?}: {message:?}");
                assert_eq!(message.tool_calls.len(), 1, "{choice:?}, {wanted:?}: {message:?}");
            }
        }
    }

    /// A model that must call a tool cannot end its answer within reasoning.
    #[test]
    fn open_reasoning_is_closed_before_a_call() {
        let folder = Folder::new();
        let mut runner = runner(&folder);
        let options = offered().variable("open", true);
        let mut ends = |choice: ToolChoice| {
            let mut answer = wanting(&mut runner, &options.clone().tool_choice(choice), "Hm.").unwrap();
            answer.events().take(20).for_each(|event| _ = event.unwrap());
            answer.generation().ids().len() < 20
        };
        assert!(ends(ToolChoice::Auto) && !ends(ToolChoice::Required));
    }

    /// If a call would end the reasoning, its opening mark cannot occur before the reasoning is
    /// closed.
    #[test]
    fn calls_cannot_begin_within_reasoning() {
        let folder = Folder::new();
        let mut runner = runner(&folder);
        let options =
            offered().call_form(CallForm::Parameters).tool_choice(ToolChoice::Required).variable("open", true);
        let mut answer = wanting(&mut runner, &options, "So <tool_call>\n<function=").unwrap();
        let events: Vec<_> = answer.events().map(Result::unwrap).collect();
        assert!(events.iter().all(|event| matches!(event, AnswerEvent::Reasoning(_))), "{events:?}");
        let reasoning = answer.message().reasoning.unwrap();
        assert!(reasoning.starts_with("So <tool_call") && !reasoning.contains("<tool_call>"), "{reasoning}");
    }

    #[test]
    fn calls_at_high_temperature_fit_their_tools() {
        let folder = Folder::new();
        let mut runner = runner(&folder);
        let mut called = 0;
        for form in FORMS {
            for seed in 0..4 {
                let sampler = SamplerOptions {
                    temperature: 2.0,
                    top_k: 0,
                    top_p: 1.0,
                    min_p: 0.0,
                    seed: Some(seed),
                    ..Default::default()
                };
                let options = GenerateOptions { sampler, max_tokens: Some(400), ..Default::default() };
                let chat = offered().call_form(form).tool_choice(ToolChoice::Required);
                let chat = chat.variable("open", false);
                let mut answer = runner.chat_with(&[Message::user("Go")], &chat, &options).unwrap();
                let events: Vec<_> = answer.events().collect();
                let ended = matches!(answer.summary().stop, StopReason::EndOfGeneration(_));
                assert!(
                    !ended || events.iter().all(|event| matches!(event, Ok(AnswerEvent::ToolCall(_)))),
                    "{form:?}: {events:?}"
                );
                called += usize::from(ended);
            }
        }
        assert!(called > 8, "{called}");
    }

    #[test]
    fn grammar_with_callable_tools_is_refused() {
        let folder = Folder::new();
        let mut runner = runner(&folder);
        let grammar = runner.grammars().unwrap().regex("<tool_call>[0-9]{3}").unwrap();
        let options = GenerateOptions { grammar: Some(grammar), ..driven::greedy() };
        let messages = [Message::user("How many?")];
        for chat in [offered(), offered().tool_choice(ToolChoice::Auto)] {
            let error = runner.chat_with(&messages, &chat, &options).unwrap_err();
            let named = |what: &str| what.contains("ToolChoice::None");
            assert!(matches!(&error, Error::Argument { name: "grammar", what } if named(what)), "{error}");
        }
        let chat = offered().tool_choice(ToolChoice::None);
        let text: String = runner.chat_with(&messages, &chat, &options).unwrap().map(Result::unwrap).collect();
        assert!(text.len() == 14 && text.starts_with("<tool_call>"), "{text}");
        assert!(runner.chat_with(&messages, &ChatOptions::default(), &options).is_ok());
    }

    #[test]
    fn schema_that_a_grammar_cannot_express_is_refused() {
        let folder = Folder::new();
        let mut runner = runner(&folder);
        let schema = json!({ "type": "object", "properties": { "n": { "multipleOf": 2 } } });
        let chat = ChatOptions::default().tools([Tool::new("pairs", "", schema)]);
        for choice in [ToolChoice::Required, ToolChoice::Auto] {
            let error = wanting(&mut runner, &chat.clone().tool_choice(choice), "So.").unwrap_err();
            let named = |what: &str| what.contains("`pairs`") && what.contains("multipleOf");
            assert!(matches!(&error, Error::Grammar(what) if named(what)), "{error}");
        }
        assert!(wanting(&mut runner, &chat.tool_choice(ToolChoice::None), "So.").is_ok());
    }
}
