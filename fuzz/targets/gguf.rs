//! Opens a GGUF file, and tokenizes and generates with its model.
//!
//! Input: the byte that the tensors' data is filled with, the length of such data (u32), and the
//! file's beginning. A model is then as long as its header, so that mutations hit the header.

#![no_main]

use std::sync::LazyLock;

use inkstone::gguf::Gguf;
use inkstone_fuzz::{Scratch, exercise_model, filler};
use libfuzzer_sys::fuzz_target;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("gguf"));

fuzz_target!(|input: &[u8]| {
    let Some((filling, header)) = input.split_first_chunk() else { return };
    let path = SCRATCH.write("model.gguf", &[header, &filler(*filling)]);
    if let Ok(gguf) = Gguf::open(&path) {
        exercise_model(&gguf, &path);
    }
});
