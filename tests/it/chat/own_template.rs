//! Tests of chat templates that the caller sets, for a model without one and instead of a model's
//! own.

use inkstone::{
    Error, GenerateOptions, Message, RunnerBuilder, SamplerOptions,
    chat::{AnswerEvent, ChatOptions, ChatTemplate, Tool},
};
use serde_json::json;

use crate::support::{
    gguf_file::Folder,
    on_cpu,
    tiny::{MODELS, with_template},
};

/// The comment at the end absorbs the spaces that pad the key in the file.
const OWN: &str = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\
    {% for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\
    </tool_call>{% endfor %}<|im_end|>\n{% endfor %}{{ tools | length if tools }}<|im_start|>assistant\n{# -#}";

fn builder() -> RunnerBuilder {
    on_cpu()
}

fn short() -> GenerateOptions {
    GenerateOptions { sampler: SamplerOptions::greedy(), max_tokens: Some(12), ..Default::default() }
}

/// A base model with the template gives the same text as a model with the template in its file.
#[test]
fn base_model_chats_with_a_given_template() {
    let folder = Folder::new();
    let messages = [Message::user("Hello")];
    let mut base = builder().from_gguf(MODELS[0].path()).unwrap();
    let error = base.chat(&messages, &short()).unwrap_err();
    assert!(matches!(&error, Error::ChatTemplate(what) if what.contains("RunnerBuilder::chat_template")), "{error}");

    let mut own = builder().chat_template(OWN).from_gguf(MODELS[0].path()).unwrap();
    let path = folder.write("chat.gguf", with_template(MODELS[0], OWN));
    let mut file = builder().from_gguf(path).unwrap();
    let texts = [&mut own, &mut file].map(|runner| {
        let mut answer = runner.chat(&messages, &short()).unwrap();
        let text: String = answer.by_ref().map(Result::unwrap).collect();
        (text, answer.generation().prompt().to_vec())
    });
    assert!(!texts[0].0.is_empty() && !texts[0].1.is_empty());
    assert_eq!(texts[0], texts[1]);
    assert_eq!(own.chat_template().unwrap().source(), OWN);
}

#[test]
fn builder_template_replaces_the_files_template() {
    let folder = Folder::new();
    let path = folder.write("chat.gguf", with_template(MODELS[0], "{{ raise_exception('the file\\'s') }}"));
    let messages = [Message::user("Hello")];
    let error = builder().from_gguf(&path).unwrap().chat(&messages, &short()).unwrap_err();
    assert!(error.to_string().contains("the file's"), "{error}");
    let mut runner = builder().chat_template(OWN).from_gguf(&path).unwrap();
    let prompt = runner.chat(&messages, &short()).unwrap().generation().prompt().to_vec();
    let tokenizer = runner.tokenizer();
    let bos = tokenizer.token_bytes(tokenizer.bos().unwrap()).unwrap();
    let template = ChatTemplate::new(OWN, str::from_utf8(bos).unwrap(), "").unwrap();
    assert_eq!(prompt, template.prompt(&messages, &ChatOptions::default(), tokenizer).unwrap().ids);
}

#[test]
fn builder_template_writes_the_models_special_tokens() {
    let runner = builder().chat_template("{{ bos_token }}|{{ eos_token }}").from_gguf(MODELS[2].path()).unwrap();
    let tokenizer = runner.tokenizer();
    let text = |id: Option<u32>| String::from_utf8(tokenizer.token_bytes(id.unwrap()).unwrap().to_vec()).unwrap();
    let rendered = runner.chat_template().unwrap().render(&[], &ChatOptions::default()).unwrap();
    assert_eq!(rendered, format!("{}|{}", text(tokenizer.bos()), text(tokenizer.eos())));
}

#[test]
fn builder_template_supports_events_and_tools() {
    let mut runner = builder().chat_template(OWN).from_gguf(MODELS[0].path()).unwrap();
    let chat = ChatOptions::default().tools([Tool::new("weather", "The weather", json!({"type": "object"}))]);
    let tokenizer = runner.tokenizer().clone();
    let said = "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
    let mut ids = tokenizer.encode(said, inkstone::tokenizer::SpecialTokens::Plain).unwrap();
    ids.push(tokenizer.end_of_generation()[0]);
    let answer = runner.chat_with(&[Message::user("Rain?")], &chat, &GenerateOptions::default()).unwrap();
    let prompt = answer.generation().prompt().len();
    let mut answer = answer.with_processor(move |so_far: &[u32], logits: &mut [f32]| {
        logits.fill(f32::NEG_INFINITY);
        logits[ids[so_far.len() - prompt] as usize] = 0.0;
        Ok(())
    });
    let events: Vec<_> = answer.events().map(Result::unwrap).collect();
    assert!(matches!(events.as_slice(), [AnswerEvent::ToolCall(call)] if call.name == "weather"), "{events:?}");
}

#[cfg(feature = "constrained")]
#[test]
fn builder_template_supports_typed_answers() {
    let mut runner = builder().chat_template(OWN).from_gguf(MODELS[0].path()).unwrap();
    let _: bool = runner.chat_as(&[Message::user("Rain?")], &ChatOptions::default(), &short()).unwrap();
}

#[cfg(feature = "async")]
#[test]
fn builder_template_reaches_async_runners() {
    use futures::{TryStreamExt, executor::block_on};
    block_on(async {
        let load = || builder().chat_template(OWN).from_gguf(MODELS[0].path());
        let text: String =
            load().unwrap().chat(&[Message::user("Hi")], &short()).unwrap().map(Result::unwrap).collect();
        let runner = inkstone::AsyncRunner::load(load).await.unwrap();
        for runner in [runner.another().await.unwrap(), runner] {
            let stream = runner.chat(&[Message::user("Hi")], &short());
            assert_eq!(stream.try_collect::<String>().await.unwrap(), text);
        }
    });
}

/// The error comes before the weights are loaded, and names the line.
#[test]
fn invalid_builder_template_fails_to_load() {
    let error = builder().chat_template("a\n{% if %}").from_gguf(MODELS[0].path()).unwrap_err();
    assert!(matches!(&error, Error::ChatTemplate(what) if what.contains("line 2")), "{error}");
}
