//! Renders a chat template with conversations, tools and documents.
//!
//! Input: the template's source, a 0, and what the user says.

#![no_main]

use std::sync::LazyLock;

use inkstone::{Message, chat::{ChatOptions, ChatTemplate}, tokenizer::Tokenizer};
use inkstone_fuzz::{conversation, fixture_tokenizer, options_read_by};
use libfuzzer_sys::fuzz_target;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| fixture_tokenizer("tokenizer/bpe.gguf"));

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |&byte| byte == 0);
    let Ok(source) = str::from_utf8(parts.next().unwrap_or_default()) else { return };
    let said = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let Ok(template) = ChatTemplate::new(source, "<s>", "</s>") else { return };
    let options = options_read_by(source);
    let _ = template.prompt(&[Message::user(said.as_ref())], &ChatOptions::default(), &TOKENIZER);
    let long = conversation(&said);
    let _ = template.render(&long, &options);
    let _ = template.prompt(&long, &options.clone().add_generation_prompt(false), &TOKENIZER);
    let _ = template.parser(&options, "");
});
