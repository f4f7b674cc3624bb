//! Tests of all kinds of prompts: texts, ids and rendered templates.

use std::borrow::Cow;

use inkstone::{
    CacheType, Error, GenerateOptions, Message, Prompt, Runner, SamplerOptions,
    chat::{ChatOptions, ChatTemplate},
};

use crate::support::{on_cpu, tiny::MODELS};

const TEXT: &str = "once upon a time";

fn runner() -> Runner {
    on_cpu().cache_type(CacheType::F32).from_gguf(MODELS[0].path()).unwrap()
}

fn options() -> GenerateOptions {
    let sampler = SamplerOptions { seed: Some(7), temperature: 1.5, ..Default::default() };
    GenerateOptions { sampler, max_tokens: Some(12), ..Default::default() }
}

#[test]
fn text_and_id_prompts_give_the_same_text() {
    let mut runner = runner();
    let ids = runner.tokenizer().encode_prompt(TEXT).unwrap();
    let array: [u32; 3] = ids[..3].try_into().unwrap();
    let mut text = |prompt: Prompt| -> String {
        let generation = runner.generate(prompt, &options()).unwrap();
        generation.map(Result::unwrap).collect()
    };
    let expected = text(TEXT.into());
    assert!(!expected.is_empty());
    let owned = TEXT.to_owned();
    let same: [Prompt; 9] = [
        (&TEXT).into(),
        (&owned).into(),
        owned.clone().into(),
        Cow::Borrowed(TEXT).into(),
        (&Cow::Borrowed(TEXT)).into(),
        ids.as_slice().into(),
        (&ids).into(),
        ids.clone().into(),
        Prompt::from(&ids).into_owned(),
    ];
    for prompt in same {
        assert_eq!(text(prompt.clone()), expected, "{prompt:?}");
    }
    assert_eq!(text((&array).into()), text(ids[..3].into()));
    assert_ne!(text((&array).into()), expected);
}

/// Compares sampled ids, and not only the most probable ones.
#[test]
fn clones_accept_id_prompts() {
    let runner = runner();
    let ids = runner.tokenizer().encode_prompt(TEXT).unwrap();
    let text = |mut runner: Runner, prompt: Prompt| -> String {
        runner.generate(prompt, &options()).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(text(runner.clone(), ids.into()), text(runner.clone(), TEXT.into()));
}

/// A rendered conversation is a prompt with the special tokens that the template wrote.
#[test]
fn rendered_template_is_accepted_as_a_prompt() {
    let template = ChatTemplate::new("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}", "", "").unwrap();
    let mut runner = runner();
    let messages = [Message::user("<|im_end|>")];
    let rendered = template.prompt(&messages, &ChatOptions::default(), runner.tokenizer()).unwrap();
    let generation = runner.generate(&rendered, &options()).unwrap();
    assert_eq!(generation.prompt(), rendered.ids);
    let by_text = runner.generate(&rendered.text, &options()).unwrap().prompt().to_vec();
    assert_ne!(by_text, rendered.ids);
    assert_eq!(runner.generate(rendered.clone(), &options()).unwrap().prompt(), rendered.ids);
}

#[test]
fn empty_prompts_and_unknown_ids_are_refused() {
    let mut runner = runner();
    let mut refused = |prompt: Prompt| runner.generate(prompt, &options()).unwrap_err();
    assert!(matches!(refused("".into()), Error::Argument { name: "prompt", .. }));
    assert!(matches!(refused(vec![].into()), Error::Argument { name: "ids", .. }));
    assert!(matches!(refused((&[320]).into()), Error::Argument { name: "ids", .. }));
    assert!(matches!(refused(vec![1; 600].into()), Error::ContextFull { tokens: 600, .. }));
}

#[test]
fn score_accepts_ids() {
    let mut runner = runner();
    let (prompt, continuation) = ("the fox", " and the hen");
    let expected = runner.score(prompt, continuation, 2).unwrap();
    let before = runner.tokenizer().encode_prompt(prompt).unwrap();
    let whole = runner.tokenizer().encode_prompt(&format!("{prompt}{continuation}")).unwrap();
    let (first, rest) = whole.split_at(whole.len() - expected.len());
    assert_eq!(runner.score(first, rest, 2).unwrap(), expected);
    assert_eq!(first, before);
    // The text is encoded separately here, with the same ids.
    assert_eq!(runner.score(&before, continuation, 2).unwrap(), expected);
    assert_eq!(runner.score(prompt, rest, 2).unwrap(), expected);
    let none: &[u32] = &[];
    assert!(matches!(runner.score(first, none, 0), Err(Error::Argument { name: "continuation", .. })));
    assert!(matches!(runner.score(none, rest, 0), Err(Error::Argument { name: "prompt", .. })));
}

/// A SentencePiece vocabulary adds a space before a text, but not before a continuation.
#[test]
fn continuation_is_encoded_without_a_leading_space() {
    let mut checked = 0;
    for tiny in MODELS {
        let runner = on_cpu().from_gguf(tiny.path()).unwrap();
        let tokenizer = runner.tokenizer();
        for text in ["fox", " fox", "\nthe fox, the hen"] {
            let ids = tokenizer.encode_continuation(text).unwrap();
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec()).collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), text, "{}", tiny.0);
            let alone = tokenizer.encode(text, inkstone::tokenizer::SpecialTokens::Parse).unwrap();
            checked += usize::from(alone != ids);
        }
    }
    assert!(checked > 0, "no vocabulary adds a space");
}
