//! Opens a GGUF file, asks whether it runs, and tokenizes and generates with its model.
//!
//! Input: the byte that the tensors' data is filled with, the length of such data (u32), and the
//! file's beginning. A model is then as long as its header, so that mutations hit the header.

#![no_main]

use std::sync::LazyLock;

use inkstone::gguf::Gguf;
use inkstone_fuzz::{Scratch, builder, exercise_model, filler};
use libfuzzer_sys::fuzz_target;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("gguf"));

fuzz_target!(|input: &[u8]| {
    let Some((filling, header)) = input.split_first_chunk() else { return };
    let path = SCRATCH.write("model.gguf", &[header, &filler(*filling)]);
    let verdict = builder().check(&path);
    match Gguf::open(&path) {
        Ok(gguf) => exercise_model(&gguf, &path),
        Err(error) => assert_eq!(verdict.obstacles[0].error.to_string(), error.to_string()),
    }
});
