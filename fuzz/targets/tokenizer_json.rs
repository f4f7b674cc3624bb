//! Reads a `tokenizer.json`, and encodes and decodes texts with it.
//!
//! Input: the file, a 0, and a text to encode. The crate `tokenizers` may panic as long as inkstone
//! makes an error of it.

#![no_main]

use std::{panic, sync::LazyLock};

use inkstone::tokenizer::Tokenizer;
use inkstone_fuzz::{Scratch, exercise_tokenizer};
use libfuzzer_sys::fuzz_target;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("tokenizer"));

/// Ends the process for every panic that is not in the crate `tokenizers`.
fn abort_at_other_panics() {
    let abort = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|location| location.file().contains("/tokenizers-")) {
            abort(panic);
        }
    }));
}

fuzz_target!(init: abort_at_other_panics(), |input: &[u8]| {
    let mut parts = input.splitn(2, |&byte| byte == 0);
    let file = parts.next().unwrap_or_default();
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    if let Ok(tokenizer) = Tokenizer::from_file(SCRATCH.write("tokenizer.json", &[file])) {
        exercise_tokenizer(&tokenizer, &text);
    }
});
