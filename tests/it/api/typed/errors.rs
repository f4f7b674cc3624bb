//! Tests of unsupported types, and of texts that fail.

use super::*;

/// Checks that a type is refused before generation, with an error that contains these words.
pub(super) fn refused<T: DeserializeOwned + JsonSchema>(runner: &mut Runner, words: &[&str]) {
    match runner.generate_as::<T>("Once", &hot(0)).map(drop) {
        Err(Error::Grammar(what)) => words.iter().for_each(|word| assert!(what.contains(word), "{word}: {what}")),
        other => panic!("{}: {other:?}", type_name::<T>()),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Outer {
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Part {
    #[schemars(extend("contains" = { "const": 3 }))]
    numbers: Vec<u8>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Guarded {
    #[schemars(extend("not" = { "const": 3 }))]
    number: u8,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Patterned {
    inner: (u8, Guess),
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Guess(#[schemars(regex(pattern = "(a)\\1"))] String);

#[derive(Debug, Deserialize, JsonSchema)]
enum Never {}

#[test]
fn unsupported_types_are_refused_by_name() {
    let runner = &mut storyteller();
    refused::<Outer>(runner, &["type `Part`", "field `numbers`", "`contains`"]);
    refused::<Guarded>(runner, &["type `Guarded`", "field `number`", "`not`"]);
    refused::<Patterned>(runner, &["type `Guess`", "`pattern`"]);
    refused::<Vec<Never>>(runner, &["`Never`"]);
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Note {
    a: u8,
    b: Vec<u8>,
    text: String,
}

#[test]
fn failed_text_is_in_the_error() {
    let runner = &mut storyteller();
    let failed = |runner: &mut Runner, options: &GenerateOptions| match runner.generate_as::<Note>("Once", options) {
        Err(Error::Incomplete { form, what, text, .. }) => (form, what, text),
        other => panic!("{other:?}"),
    };
    let (form, what, text) = failed(runner, &GenerateOptions { max_tokens: Some(4), ..hot(0) });
    assert!(form == "Note" && what.contains("max_tokens") && text.starts_with("{\"a\""), "{what}: {text}");
    let (_, what, text) = failed(runner, &GenerateOptions { stop: vec!["\"b\"".into()], ..hot(0) });
    assert!(what.contains("stop string \"\\\"b\\\"\"") && text.ends_with(','), "{what}: {text}");
    let mut small = on_cpu().context_length(24).from_gguf(data("storyteller/storyteller.gguf")).unwrap();
    let (_, what, _) = failed(&mut small, &GenerateOptions { max_tokens: None, ..hot(0) });
    assert!(what.contains("context_length"), "{what}");
    let messages = [Message::user("A fox")];
    let error =
        runner.chat_as::<Note>(&messages, &Default::default(), &GenerateOptions { max_tokens: Some(4), ..hot(0) });
    assert!(matches!(error, Err(Error::Incomplete { stop, .. }) if stop == "TokenLimit"));
    // A limit right after the last token is not a failure.
    let grammar =
        runner.grammars().unwrap().json_schema_with(&json!({ "type": "array", "maxItems": 0 }), JsonStyle::Compact);
    let options = GenerateOptions { grammar: Some(grammar.unwrap()), ..hot(0) };
    let mut generation = runner.generate("Once", &options).unwrap();
    let count = generation.by_ref().count();
    assert!(matches!(generation.summary().stop, StopReason::EndOfGeneration(_)), "{count}");
    let exact = GenerateOptions { max_tokens: Some(generation.summary().generated_tokens), ..hot(0) };
    runner.generate_as::<[u8; 0]>("Once", &exact).unwrap();
    // A rule of the type that its schema does not express.
    match runner.generate_as::<[Fussy; 2]>("Once", &hot(0)) {
        Err(Error::Form { form, what, text }) => {
            assert!(form == "[Fussy; 2]" && what.contains("never right") && text.starts_with('['), "{what}: {text}");
        }
        other => panic!("{other:?}"),
    }
    // serde cannot read 128-bit integers there.
    let error = runner.generate_as::<Wide>("Once", &hot(0));
    assert!(matches!(error, Err(Error::Form { .. })), "{error:?}");
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Wide {
    Large(u128),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "bool")]
struct Fussy;

impl TryFrom<bool> for Fussy {
    type Error = &'static str;

    fn try_from(_: bool) -> Result<Self, Self::Error> {
        Err("never right")
    }
}

#[test]
fn typed_json_is_compact() {
    let runner = &mut storyteller();
    for seed in 0..10 {
        let options = GenerateOptions { stop: vec![" ".into(), "\n".into()], ..hot(seed) };
        runner.generate_as::<(Flat, [u8; 3])>("Once", &options).unwrap();
    }
}
