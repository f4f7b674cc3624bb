//! Restores a changed session, and generates with what it has.
//!
//! Input: a byte that chooses the model, and changes of a session of that model: each the place
//! (u16, little-endian) and the byte that is put there, or the new length after the place 65535.
//! Checksums are ignored when fuzzing.

#![no_main]

use std::{cell::RefCell, io};

use inkstone::{GenerateOptions, Result, Runner};
use inkstone_fuzz::{builder, fixture};
use libfuzzer_sys::fuzz_target;

/// Models with attention alone, with windows, with recurrent layers, and with a head for
/// multi-token prediction.
const MODELS: [&str; 4] =
    ["models/qwen3.gguf", "models/gemma3.gguf", "models/qwen35.gguf", "speculation/correlated-blurred.gguf"];

thread_local! {
    static RUNNERS: RefCell<Vec<(Runner, Vec<u8>)>> = RefCell::new(MODELS.iter().map(|name| with_session(name)).collect());
}

/// Loads a model, and saves a session of it.
fn with_session(name: &str) -> (Runner, Vec<u8>) {
    let mut runner = builder().context_length(256).from_gguf(fixture(name)).expect("a valid fixture");
    let ids: Vec<u32> = (0..90).map(|i| (i * i + 7 * i) % 300).collect();
    let mut session = vec![];
    runner.prefill(&ids).expect("tokens of the vocabulary");
    runner.save(&mut session).expect("room in memory");
    (runner, session)
}

fuzz_target!(|input: &[u8]| {
    let Some((model, changes)) = input.split_first() else { return };
    RUNNERS.with_borrow_mut(|runners| {
        let (runner, session) = &mut runners[usize::from(*model) % MODELS.len()];
        let mut session = session.clone();
        for change in changes.chunks_exact(3) {
            match usize::from(u16::from_le_bytes([change[0], change[1]])) {
                65535 => session.truncate(session.len() * usize::from(change[2]) / 255),
                place => session.iter_mut().skip(place).take(1).for_each(|byte| *byte = change[2]),
            }
        }
        if runner.restore(&session[..]).is_err() {
            return;
        }
        let mut options = GenerateOptions::default();
        options.max_tokens = Some(3);
        options.sampler.seed = Some(1);
        let prompt = [runner.tokens(), &[5]].concat();
        if let Ok(generation) = runner.generate(&prompt, &options) {
            let _ = generation.collect::<Result<String>>();
        }
        let _ = runner.truncate(prompt.len() / 2);
        let _ = runner.decode(7).map(drop);
        let _ = runner.save(io::sink());
    });
});
