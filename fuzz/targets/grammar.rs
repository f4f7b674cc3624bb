//! Compiles a grammar and writes a text that it allows.
//!
//! Input: a byte that says of what kind the source is, a seed for which of the allowed tokens
//! follows, and the source. A text that comes to an end must be JSON where the source is a schema,
//! and a call that passes the check by the tool's schema where the schema is a tool's. Numbers may
//! be larger than an f64.

#![no_main]

use std::{cell::RefCell, sync::LazyLock};

use inkstone::{Error, GenerateOptions, Message, Result, Runner, StopReason, chat::{ChatOptions, Tool, ToolChoice}, grammar::{Grammars, JsonStyle}, sampler::LogitsProcessor, tokenizer::Tokenizer};
use inkstone_fuzz::{builder, fixture, fixture_tokenizer};
use libfuzzer_sys::fuzz_target;

/// The most tokens of a text.
const LENGTH: usize = 48;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| fixture_tokenizer("tokenizer/bpe.gguf"));
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(&TOKENIZER).expect("a token that ends a text"));

thread_local! {
    static RUNNER: RefCell<Runner> =
        RefCell::new(builder().from_gguf(fixture("models/qwen3.gguf")).expect("a valid fixture"));
}

/// A generator of pseudo-random numbers: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

/// Writes tokens that the grammar allows until it allows an end; `None` where it takes too long.
fn write(mut constraint: impl LogitsProcessor, random: &mut Random) -> Result<Option<String>> {
    let mut ids = vec![];
    while ids.len() < LENGTH {
        let mut logits = vec![0.0; TOKENIZER.vocab_size()];
        constraint.process(&ids, &mut logits)?;
        let allowed: Vec<u32> = (0..).zip(&logits).filter(|(_, logit)| logit.is_finite()).map(|(id, _)| id).collect();
        assert!(!allowed.is_empty(), "the grammar allows no token, not even an end");
        let ends = allowed.iter().any(|&id| TOKENIZER.is_end_of_generation(id));
        if ends && (allowed.len() == 1 || random.below(4) == 0) {
            return TOKENIZER.decode(&ids).map(Some);
        }
        ids.push(allowed[random.below(allowed.len())]);
    }
    Ok(None)
}

/// Lets a model answer with a call of a tool whose arguments have this schema.
fn call(schema: serde_json::Value, seed: u64) {
    let chat = ChatOptions::default()
        .tools([Tool::new("weather", "", schema)])
        .tool_choice(ToolChoice::Required)
        .parallel_tool_calls(false);
    let mut options = GenerateOptions::default();
    options.max_tokens = Some(LENGTH);
    options.sampler.seed = Some(seed);
    options.sampler.temperature = 4.0;
    RUNNER.with_borrow_mut(|runner| {
        let Ok(mut answer) = runner.chat_with(&[Message::user("")], &chat, &options) else { return };
        let wrong = answer.events().find_map(|event| match event {
            Err(error @ Error::ToolCall { .. }) => Some(error),
            _ => None,
        });
        if let (Some(wrong), StopReason::EndOfGeneration(_)) = (wrong, &answer.summary().stop) {
            panic!("{wrong}");
        }
    });
}

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, seed @ ..], source)) = input.split_first_chunk::<5>() else { return };
    let Ok(source) = str::from_utf8(source) else { return };
    let seed = u64::from(u32::from_le_bytes(seed)) + 1;
    let json = || serde_json::from_str::<serde_json::Value>(source).ok();
    let grammar = match kind % 5 {
        0 => json().map(|schema| GRAMMARS.json_schema(&schema)),
        1 => json().map(|schema| GRAMMARS.json_schema_with(&schema, JsonStyle::Compact)),
        2 => Some(GRAMMARS.regex(source)),
        3 => Some(GRAMMARS.lark(source)),
        _ => return json().map_or((), |schema| call(schema, seed)),
    };
    let Some(Ok(grammar)) = grammar else { return };
    let constraint = grammar.constraint(TOKENIZER.vocab_size()).expect("a grammar of this vocabulary");
    if let (0 | 1, Ok(Some(text))) = (kind % 5, write(constraint, &mut Random(seed)))
        && let Err(error) = serde_json::from_str::<serde_json::Value>(&text)
        && !error.to_string().starts_with("number out of range")
    {
        panic!("{error}: {text}");
    }
});
