//! Tests of constrained text, with the storyteller, which was not trained for it.

use std::collections::BTreeMap;

use inkstone::{
    Error, GenerateOptions, Message, Runner, SamplerOptions,
    chat::{ChatOptions, Content},
    gguf::Gguf,
    grammar::{Grammar, Grammars},
    sampler::LogitsProcessor,
    tokenizer::{SpecialTokens, Tokenizer},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{
    data,
    gguf_file::Folder,
    on_cpu,
    tiny::{MODELS, with_template},
};

fn storyteller() -> Runner {
    on_cpu().from_gguf(data("storyteller/storyteller.gguf")).unwrap()
}

fn grammars() -> Grammars {
    let gguf = Gguf::open(data("storyteller/storyteller.gguf")).unwrap();
    Grammars::new(&Tokenizer::from_gguf(&gguf).unwrap()).unwrap()
}

fn hot(seed: u64) -> SamplerOptions {
    SamplerOptions { temperature: 2.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(seed), ..Default::default() }
}

fn text(runner: &mut Runner, prompt: &str, grammar: &Grammar, sampler: SamplerOptions) -> String {
    let options = GenerateOptions { grammar: Some(grammar.clone()), sampler, ..Default::default() };
    let mut generation = runner.generate(prompt, &options).unwrap();
    let text = generation.by_ref().collect::<Result<String, _>>().unwrap();
    let stop = &generation.summary().stop;
    assert!(matches!(stop, inkstone::StopReason::EndOfGeneration(_)), "{stop:?}: {text}");
    text
}

/// Returns whether a value is valid for the schema of the test below, checked by hand.
fn is_animal(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    let has = |key: &str, holds: &dyn Fn(&Value) -> bool| object.get(key).is_some_and(holds);
    let short = |value: &Value, most: usize| value.as_str().is_some_and(|text| text.chars().count() <= most);
    let kinds = ["fox", "hen", "owl"];
    object.keys().all(|key| ["name", "kind", "age", "tame", "friends", "weight"].contains(&key.as_str()))
        && has("name", &|name| short(name, 12) && !name.as_str().unwrap_or_default().is_empty())
        && has("kind", &|kind| kind.as_str().is_some_and(|kind| kinds.contains(&kind)))
        && has("age", &|age| age.as_i64().is_some_and(|age| (0..=30).contains(&age)))
        && has("tame", &Value::is_boolean)
        && has("friends", &|all| all.as_array().is_some_and(|all| all.len() <= 3 && all.iter().all(|f| short(f, 8))))
        && object.get("weight").is_none_or(|weight| weight.is_null() || weight.as_f64().is_some_and(|w| w >= 0.0))
}

#[test]
fn json_at_high_temperature_is_valid_for_its_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 12 },
            "kind": { "enum": ["fox", "hen", "owl"] },
            "age": { "type": "integer", "minimum": 0, "maximum": 30 },
            "tame": { "type": "boolean" },
            "friends": { "type": "array", "items": { "type": "string", "maxLength": 8 }, "maxItems": 3 },
            "weight": { "anyOf": [{ "type": "number", "minimum": 0, "maximum": 9, "multipleOf": 0.5 }, { "type": "null" }] },
        },
        "required": ["name", "kind", "age", "tame", "friends"],
        "additionalProperties": false,
    });
    let mut runner = storyteller();
    let grammar = runner.grammars().unwrap().json_schema(&schema).unwrap();
    let mut different = std::collections::HashSet::new();
    for seed in 0..200 {
        let text = text(&mut runner, "A fox", &grammar, hot(seed));
        let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}: {text}"));
        assert!(is_animal(&value), "seed {seed}: {text}");
        different.insert(text);
    }
    assert!(different.len() > 190, "{} different ones", different.len());
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "serde reads the fields")]
struct Tale {
    #[schemars(length(max = 10))]
    title: String,
    chapters: [Chapter; 2],
    mood: Mood,
    readers: Option<u8>,
    lengths: (i16, f32),
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Chapter {
    #[schemars(length(max = 3))]
    pages: Vec<Page>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[allow(dead_code, reason = "serde reads the fields")]
enum Page {
    Picture { wide: bool },
    Words { count: u16 },
}

#[derive(Debug, Deserialize, JsonSchema)]
enum Mood {
    Merry,
    Sad,
}

#[test]
fn typed_answers_are_read_by_serde() {
    let mut runner = storyteller();
    let greedy = GenerateOptions { sampler: SamplerOptions::greedy(), ..Default::default() };
    let tale: Tale = runner.generate_as("Once", &greedy).unwrap();
    assert!(tale.title.chars().count() <= 10 && tale.chapters.iter().all(|chapter| chapter.pages.len() <= 3));
    for seed in 0..10 {
        let options = GenerateOptions { sampler: hot(seed), ..Default::default() };
        runner.generate_as::<Tale>("Once", &options).unwrap();
    }
    let messages = [Message::user("Tell me of a fox")];
    let tale: Tale = runner.chat_as(&messages, &Default::default(), &greedy).unwrap();
    assert!(tale.title.chars().count() <= 10);
    let truncated = GenerateOptions { max_tokens: Some(5), ..greedy };
    let error = runner.generate_as::<Tale>("Once", &truncated).unwrap_err();
    assert!(error.to_string().contains("before it was complete (TokenLimit)"), "{error}");
    // Keys of any name and numbers of any size may be unbounded; the constraint holds nevertheless.
    let grammar =
        runner.grammars().unwrap().json_schema(schemars::schema_for!(BTreeMap<String, f64>).as_value()).unwrap();
    let options =
        GenerateOptions { grammar: Some(grammar), max_tokens: Some(40), sampler: hot(1), ..Default::default() };
    let begin: String = runner.generate("Once", &options).unwrap().map(Result::unwrap).collect();
    assert!(begin.starts_with('{'), "{begin}");
}

mod composed {
    //! Types whose objects are composed of several types.
    #![allow(dead_code, reason = "serde reads the fields")]

    use schemars::JsonSchema;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, JsonSchema)]
    pub struct Meeting {
        guests: u8,
        late: Option<bool>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    pub enum Event {
        Meeting(Meeting),
        Feast { hens: u8 },
        Rest,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub enum Place {
        Wood { trees: u16 },
        Barn(Barn),
        Nowhere,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub struct Barn {
        doors: [Event; 1],
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub struct Day {
        number: u8,
        #[serde(flatten)]
        event: Event,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub struct Diary {
        #[serde(flatten)]
        day: Day,
        #[serde(flatten)]
        place: Place,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "op")]
    pub enum Tree {
        Leaf(Meeting),
        Node { days: [Day; 1] },
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub struct Perhaps {
        name: bool,
        #[serde(flatten)]
        place: Option<Place>,
    }
}

/// An open object would get unbounded keys at this temperature.
#[test]
fn composed_objects_have_only_the_types_fields() {
    fn holds<T: serde::de::DeserializeOwned + JsonSchema>(runner: &mut Runner) {
        for seed in 0..20 {
            let options = GenerateOptions { sampler: hot(seed), max_tokens: Some(400), ..Default::default() };
            let what = std::any::type_name::<T>();
            runner.generate_as::<T>("Once", &options).unwrap_or_else(|e| panic!("{what}, seed {seed}: {e}"));
        }
    }
    let runner = &mut storyteller();
    holds::<composed::Event>(runner);
    holds::<composed::Day>(runner);
    holds::<composed::Diary>(runner);
    holds::<composed::Tree>(runner);
    holds::<composed::Perhaps>(runner);
}

#[test]
fn texts_match_their_expression_or_grammar() {
    let mut runner = storyteller();
    let [date, sum] = {
        let grammars = runner.grammars().unwrap();
        let sum = "start: term (\"+\" term)~1..2\nterm: /[0-9]{1,3}/ | \"(\" start \")\"";
        [grammars.regex("[0-9]{4}-(0[0-9]|1[0-2])-[0-3][0-9]").unwrap(), grammars.lark(sum).unwrap()]
    };
    for seed in 0..20 {
        let found = text(&mut runner, "on ", &date, hot(seed));
        let digits = found.split('-').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<_>>();
        assert!(found.len() == 10 && digits[1] <= 12 && digits[2] < 40, "{found}");
    }
    // A sentence of many braces may be longer than the context.
    let cool = |seed| SamplerOptions { temperature: 0.7, seed: Some(seed), ..Default::default() };
    let found = text(&mut runner, "1+1", &sum, cool(3));
    assert!(found.contains('+') && found.chars().all(|c| "0123456789+()".contains(c)), "{found}");
}

/// Compares masks with a search through all words of the language: a token is allowed if its bytes
/// continue one of them.
#[test]
fn masks_allow_the_tokens_that_a_search_finds() {
    let grammars = grammars();
    let gguf = Gguf::open(data("storyteller/storyteller.gguf")).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let grammar = grammars.regex("(the|a) (fox|hen|owl)( and the (fox|owl))?").unwrap();
    let animals = ["fox", "hen", "owl"].map(|one| ["the", "a"].map(|article| format!("{article} {one}"))).concat();
    let longer = animals.iter().flat_map(|first| ["fox", "owl"].map(|one| format!("{first} and the {one}")));
    let words: Vec<String> = animals.iter().cloned().chain(longer).collect();

    let vocab_size = tokenizer.vocab_size();
    let mut open: Vec<Vec<u32>> = vec![vec![]];
    let mut checked = 0;
    while let Some(ids) = open.pop() {
        let prefix = tokenizer.decode(&ids).unwrap();
        let mut constraint = grammar.constraint(vocab_size + 7).unwrap();
        let mut logits = vec![0.0; vocab_size + 7];
        // Earlier ids do not matter.
        constraint.process(&[5, 5], &mut logits).unwrap();
        let mut history = vec![5, 5];
        for &id in &ids {
            history.push(id);
            logits.fill(0.0);
            constraint.process(&history, &mut logits).unwrap();
        }
        for id in 0..(vocab_size + 7) as u32 {
            let expected = match tokenizer.token_bytes(id) {
                _ if tokenizer.is_end_of_generation(id) => words.contains(&prefix),
                Ok(bytes) if !bytes.is_empty() && !tokenizer.control_tokens().any(|(mark, _)| mark == id) => {
                    let longer = [prefix.as_bytes(), bytes].concat();
                    words.iter().any(|word| word.as_bytes().starts_with(&longer))
                }
                _ => false,
            };
            assert_eq!(logits[id as usize] == 0.0, expected, "{id} after {prefix:?}");
            if expected && !tokenizer.is_end_of_generation(id) && checked < 60 {
                checked += 1;
                open.push([ids.as_slice(), &[id]].concat());
            }
        }
    }
    assert_eq!(checked, 60);
}

#[test]
fn unusable_grammars_are_refused() {
    let grammars = grammars();
    let refused = |schema: Value, named: &str| match grammars.json_schema(&schema) {
        Err(Error::Grammar(what)) => assert!(what.contains(named), "{what}"),
        other => panic!("{schema}: {other:?}"),
    };
    refused(json!({ "type": "object", "unevaluatedProperties": false }), "unevaluatedProperties");
    refused(json!({ "type": "array", "uniqueItems": true }), "uniqueItems");
    refused(json!({ "type": "array", "contains": { "type": "null" } }), "contains");
    refused(json!({ "if": { "type": "null" }, "then": { "type": "null" } }), "if");
    refused(json!({ "not": { "type": "null" } }), "not");
    refused(json!({ "type": "objekt" }), "objekt");
    refused(json!({ "$ref": "#/nowhere" }), "nowhere");
    refused(json!({ "type": "integer", "minimum": 3, "maximum": 2 }), "minimum");
    refused(json!({ "type": "object", "x-guidance": { "lenient": true } }), "x-guidance");
    refused(json!("object"), "");
    assert!(matches!(grammars.regex("a(b"), Err(Error::Grammar(_))));
    assert!(matches!(grammars.regex(r"(a)\1"), Err(Error::Grammar(_))));
    let error = grammars.lark("start: \"a\" nowhere").unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
    // A grammar that was compiled for a larger vocabulary.
    let grammar = grammars.regex("a").unwrap();
    assert!(matches!(grammar.constraint(10), Err(Error::Argument { name: "grammar", .. })));
}

/// llguidance converts an expression into a Lark grammar, which the caller did not write.
#[test]
fn regex_errors_quote_the_callers_expression() {
    let grammars = grammars();
    let refused = |expression: &str| grammars.regex(expression).unwrap_err().to_string();
    assert_eq!(refused("a/b("), "grammar: regex parse error:\n    a/b(\n       ^\nerror: unclosed group");
    assert!(refused(r"(a)\1").contains("\n    (a)\\1\n       ^^\nerror: backreferences"), "{}", refused(r"(a)\1"));
    assert!(refused("a\nb(").contains("error: unclosed group"));
    assert!(refused("a\\").contains("incomplete escape"), "{}", refused("a\\"));
    assert_eq!(
        refused(r"a/\bc"),
        r"grammar: the regular expression `a/\bc` cannot be used: lookarounds not supported yet; WordUnicode"
    );
    assert!(grammars.regex("").is_ok() && grammars.regex("a/b|\\/").is_ok());
}

#[test]
fn lark_errors_name_and_quote_the_line() {
    let grammars = grammars();
    let refused = |grammar: &str| grammars.lark(grammar).unwrap_err().to_string();
    assert_eq!(
        refused("start: \"a\" foo\n\nfoo:   \"b\" nowhere\n"),
        "grammar: line 3, `foo: \"b\" nowhere`: unknown name: \"nowhere\""
    );
    let syntax = refused("// é\nstart \"a\"\nA: /x/");
    assert!(syntax.starts_with("grammar: line 2, column 7, `start \"a\"`: Expected token ':', found"), "{syntax}");
    assert!(!syntax.contains('|'), "{syntax}");
    assert_eq!(
        refused("start: A\nA: /a(b/"),
        "grammar: line 2, `A: /a(b/`: regex parse error:\n    a(b\n     ^\nerror: unclosed group"
    );
    let json = refused("start: %json { \"type\": \"objekt\" }");
    assert!(json.ends_with("failed to compile JSON schema: Invalid type: objekt"), "{json}");
    assert!(refused("\n\nstart: %json { \"type\": ").ends_with("line 2 column 0 (counted from the directive)"));
    assert_eq!(refused("foo: \"a\""), "grammar: no start rule found");
}

#[test]
fn grammars_are_shared_by_threads() {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<Grammar>();
    assert_shared::<Grammars>();
    assert_shared::<GenerateOptions>();
}

const THINKS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    <|im_start|>assistant\n{% if open %}<think>\n{% elif open is false %}<think>\n\n</think>\n\n{% endif %}";

/// Returns the answer of a model that would generate `text` if the grammar allowed it.
fn answer(runner: &mut Runner, open: Option<bool>, text: &str, grammar: Option<Grammar>) -> Message {
    let tokenizer = runner.tokenizer().clone();
    let mut wanted = tokenizer.encode(text, SpecialTokens::Parse).unwrap();
    wanted.push(tokenizer.end_of_generation()[0]);
    let options = GenerateOptions { grammar, sampler: SamplerOptions::greedy(), ..Default::default() };
    let chat = open.map_or_else(ChatOptions::default, |open| ChatOptions::default().variable("open", open));
    let answer = runner.chat_with(&[Message::user("How many?")], &chat, &options).unwrap();
    let prompt = answer.generation().prompt().len();
    let mut answer = answer.with_processor(move |ids: &[u32], logits: &mut [f32]| {
        if let Some(&id) = wanted.get(ids.len() - prompt) {
            logits[id as usize] += 1e4;
        }
        Ok(())
    });
    for event in answer.events() {
        event.unwrap();
    }
    answer.message()
}

#[test]
fn reasoning_is_unconstrained_before_a_constrained_answer() {
    let folder = Folder::new();
    let path = folder.write("thinks.gguf", with_template(MODELS[0], THINKS));
    let runner = &mut on_cpu().from_gguf(path).unwrap();
    let number = runner.grammars().unwrap().regex("[0-9]{3}").unwrap();
    let thought = |message: &Message| message.reasoning.clone().unwrap_or_default();
    // The reasoning is opened by the prompt, opened by the model, and closed by the prompt.
    for (open, text) in [
        (Some(true), "One {two\n</think>\n\n123"),
        (None, "<think>\nOne {two\n</think>\n\n123"),
        (None, "<think>\nOne {two\n</think>123"),
    ] {
        let message = answer(runner, open, text, Some(number.clone()));
        assert_eq!((thought(&message).as_str(), text_of(&message)), ("One {two", "123"), "{text}");
    }
    let message = answer(runner, Some(false), "<think>\nOne\n</think>\n\n123", Some(number.clone()));
    assert!(message.reasoning.is_none() && is_number(text_of(&message)), "{message:?}");
    // Tokens that the grammar forbids after the reasoning do not occur, even if they are the most
    // probable.
    for text in ["<think>\nOne\n</think>\n\nabc", "<think>\nOne\n</think>\n\n\n\n\n12", "one two three"] {
        let message = answer(runner, None, text, Some(number.clone()));
        assert!(is_number(text_of(&message)), "{text:?}: {message:?}");
    }
    // A mark that the grammar allows belongs to the answer.
    let marked = runner.grammars().unwrap().regex("<think>[0-9]{3}").unwrap();
    let message = answer(runner, Some(false), "<think>456", Some(marked));
    assert_eq!(thought(&message), "456", "the parser takes it for a thought all the same");
    let free = answer(runner, None, "<think>\nOne\n</think>\n\nabc", None);
    assert_eq!((thought(&free).as_str(), text_of(&free)), ("One", "abc"));
}

fn text_of(message: &Message) -> &str {
    match &message.content {
        Content::Text(text) => text,
        _ => panic!("{message:?}"),
    }
}

fn is_number(text: &str) -> bool {
    text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit())
}
