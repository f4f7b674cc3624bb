//! Opens a directory of safetensors, and tokenizes and generates with its model.
//!
//! Input: the byte that the tensors' data is filled with, the length of such data (u32), a byte
//! that is 1 where the length before the tensors' header is part of the input, and the texts of
//! config.json, generation_config.json, tokenizer_config.json and the tensors' header, with a 0
//! between each two.

#![no_main]

use std::sync::LazyLock;

use inkstone::internals::models;
use inkstone_fuzz::{Scratch, exercise_model, filler, fixture};
use libfuzzer_sys::fuzz_target;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| {
    let scratch = Scratch::new("safetensors");
    let tokenizer = std::fs::read(fixture("checkpoints/qwen3/tokenizer.json")).expect("a fixture");
    scratch.write("tokenizer.json", &[&tokenizer]);
    scratch
});

fuzz_target!(|input: &[u8]| {
    let Some((filling, input)) = input.split_first_chunk() else { return };
    let Some((&has_length, texts)) = input.split_first() else { return };
    let mut texts = texts.splitn(4, |&byte| byte == 0);
    for name in ["config.json", "generation_config.json", "tokenizer_config.json"] {
        match texts.next() {
            Some(text) if !text.is_empty() => drop(SCRATCH.write(name, &[text])),
            _ => SCRATCH.remove(name),
        }
    }
    let header = texts.next().unwrap_or_default();
    let length = (header.len() as u64).to_le_bytes();
    let length = if has_length == 1 { &[][..] } else { &length };
    SCRATCH.write("model.safetensors", &[length, header, &filler(*filling)]);
    if let Ok(gguf) = models::open(SCRATCH.path()) {
        exercise_model(&gguf, SCRATCH.path());
    }
});
