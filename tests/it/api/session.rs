//! Tests that sequences are saved and restored: what follows is the same as without, on any device,
//! and damaged or foreign bytes are refused.

use std::io::{self, Cursor, Read, Write};

use inkstone::{
    CacheType, Device, Error, GenerateOptions, LogitsFor, Runner, RunnerBuilder, SamplerOptions, Speculation,
};

use crate::support::{
    data, drive,
    graphs::Random,
    on_cpu,
    tiny::{MODELS, RECURRENT, Tiny, nmse},
};

/// The squared error of logits that two devices may round differently: a value of the cache in f16
/// or int8 may be rounded to its other neighbor.
const ROUNDING: f64 = 1e-4;

/// The size of a session's header in bytes; the last four are its checksum.
const HEADER: usize = 64;

fn ids(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * i + 7 * i) % 300).collect()
}

fn on_gpus() -> Vec<RunnerBuilder> {
    let names = drive::gpus().into_iter().map(|gpu| gpu.device().name.clone());
    names.map(|name| Runner::builder().device(Device::Gpu(inkstone::Adapter::Named(name)))).collect()
}

fn saved(runner: &mut Runner) -> Vec<u8> {
    let mut session = vec![];
    runner.save(&mut session).unwrap();
    session
}

/// Computes a prompt in chunks, and some tokens after it.
fn write_text(runner: &mut Runner, len: u32) {
    let ids = ids(len + 12);
    let (prompt, rest) = ids.split_at(len as usize);
    let sequence = runner.sequence();
    runner.decoder_mut().prefill(sequence, prompt, |_, _| true).unwrap();
    rest.iter().for_each(|id| drop(runner.decode(*id).unwrap().to_vec()));
}

/// Returns logits and tokens after the text, after the text without its end, and of a fork.
fn go_on(runner: &mut Runner) -> (Vec<f32>, Vec<u32>) {
    let len = runner.tokens().len();
    let (mut logits, mut tokens) = (runner.decode(5).unwrap().to_vec(), vec![]);
    let mut next = 9;
    for _ in 0..6 {
        next = runner.decode_greedy(next).unwrap();
        tokens.push(next);
    }
    let sequence = runner.sequence();
    let fork = runner.decoder_mut().fork(sequence).unwrap();
    runner.truncate(len - 9).unwrap();
    logits.extend_from_slice(runner.decode(7).unwrap());
    let runs = [(fork, &[3][..], LogitsFor::Last), (sequence, &[4, 11][..], LogitsFor::All)];
    logits.extend_from_slice(runner.decoder_mut().step(&runs).unwrap());
    runner.decoder_mut().close(fork).unwrap();
    (logits, tokens)
}

/// The tiny models, some with texts many times as long as their window.
fn texts() -> impl Iterator<Item = (Tiny, u32)> {
    MODELS.into_iter().map(|tiny| (tiny, if tiny.0.starts_with("gemma") { 470 } else { 90 }))
}

#[test]
fn restored_sequences_go_on_bit_for_bit() {
    for (tiny, len) in texts() {
        let mut runner = on_cpu().threads(2).prefill_chunk(37).from_gguf(tiny.path()).unwrap();
        write_text(&mut runner, len);
        let session = saved(&mut runner);
        let held = runner.tokens().to_vec();
        let expected = go_on(&mut runner);
        for threads in [1, 3] {
            let mut other = on_cpu().threads(threads).from_gguf(tiny.path()).unwrap();
            other.prefill(&ids(70)).unwrap();
            // What follows the session belongs to the caller.
            let mut reader = Cursor::new([&session[..], b"rest"].concat());
            other.restore(&mut reader).unwrap();
            assert_eq!(reader.position(), session.len() as u64, "{}", tiny.0);
            assert_eq!(other.tokens(), held, "{}", tiny.0);
            assert!(saved(&mut other) == session, "{} with {threads} threads is saved otherwise", tiny.0);
            assert!(go_on(&mut other) == expected, "{} with {threads} threads", tiny.0);
        }
    }
}

#[test]
fn sessions_move_between_devices_and_cache_types() {
    let models = ["qwen3", "gemma3", "gemma4", "qwen35", "phi3"];
    let in_f16 = models.map(|name| (name, CacheType::F16));
    let others = [CacheType::F32, CacheType::Q8_0].map(|cache_type| ("gemma3", cache_type));
    for (name, cache_type) in in_f16.into_iter().chain(others) {
        let (tiny, len) = texts().find(|(tiny, _)| tiny.0 == name).unwrap();
        let load =
            |builder: RunnerBuilder| builder.cache_type(cache_type).prefill_chunk(64).from_gguf(tiny.path()).unwrap();
        let mut cpu = load(on_cpu().threads(1));
        write_text(&mut cpu, len);
        let session = saved(&mut cpu);
        let (expected, _) = go_on(&mut cpu);
        for builder in on_gpus() {
            let mut gpu = load(builder);
            gpu.restore(&session[..]).unwrap();
            assert!(saved(&mut gpu) == session, "{name} in {cache_type:?} is saved otherwise by the GPU");
            let error = nmse(&go_on(&mut gpu).0, &expected);
            assert!(error < ROUNDING, "{name} in {cache_type:?}: {error:.1e}");
            // What the GPU computed goes to the CPU, and back.
            gpu.reset();
            write_text(&mut gpu, len);
            let session = saved(&mut gpu);
            cpu.restore(&session[..]).unwrap();
            assert!(saved(&mut cpu) == session, "{name} in {cache_type:?} is saved otherwise by the CPU");
            let found = go_on(&mut gpu);
            gpu.restore(&session[..]).unwrap();
            assert!(go_on(&mut gpu) == found, "{name} in {cache_type:?}");
        }
    }
}

/// Generates a text, sampled or not, saves it in the middle, and goes on in both runners.
#[test]
fn restored_texts_are_those_of_the_saved_ones() {
    let path = data("speculation/correlated-blurred.gguf");
    let mut drafted = [0; 2];
    for (seed, speculation) in
        [Speculation::Off, Speculation::Exactly(3), Speculation::Exactly(8)].into_iter().cycle().take(9).enumerate()
    {
        let sampler =
            SamplerOptions { temperature: [0.0, 0.8][seed % 2], seed: Some(seed as u64), ..Default::default() };
        let options = GenerateOptions { sampler, speculation, max_tokens: Some(25), ..Default::default() };
        let written = |runner: &mut Runner| {
            let prompt = if runner.tokens().is_empty() { vec![17, 35, 60] } else { [runner.tokens(), &[7]].concat() };
            let mut generation = runner.generate(&prompt, &options).unwrap().past_the_end();
            generation.by_ref().for_each(|piece| drop(piece.unwrap()));
            let drafts = generation.summary().speculation.clone();
            (generation.ids().to_vec(), [drafts.drafted, drafts.accepted])
        };
        let load = |threads| on_cpu().threads(threads).without_ngrams().from_gguf(&path).unwrap();
        let (mut runner, mut other) = (load(2), load(1));
        written(&mut runner);
        let session = saved(&mut runner);
        other.restore(&session[..]).unwrap();
        assert!(saved(&mut other) == session, "{speculation:?}");
        for _ in 0..3 {
            let expected = written(&mut runner);
            assert_eq!(written(&mut other), expected, "{speculation:?}");
            drafted = [drafted[0] + expected.1[0], drafted[1] + expected.1[1]];
        }
        for len in [20, 31] {
            runner.truncate(len).unwrap();
            other.truncate(len).unwrap();
            assert_eq!(written(&mut other), written(&mut runner), "{speculation:?} truncated to {len}");
        }
    }
    assert!(drafted[0] > 300 && drafted[1] > 60, "{drafted:?}");
}

#[test]
fn tokens_alone_are_computed_again() {
    for tiny in [MODELS[0], RECURRENT] {
        let load = |cache_type| on_cpu().cache_type(cache_type).from_gguf(tiny.path()).unwrap();
        let mut runner = load(CacheType::F32);
        write_text(&mut runner, 90);
        let mut session = vec![];
        runner.save_tokens(&mut session).unwrap();
        assert!(session.len() < 4 * 102 + 100, "{}", session.len());
        let mut other = load(CacheType::F32);
        other.restore(&session[..]).unwrap();
        assert_eq!(other.tokens(), runner.tokens());
        assert!(other.decode(5).unwrap() == runner.decode(5).unwrap(), "{}", tiny.0);
        load(CacheType::F16).restore(&session[..]).unwrap();
        let mut empty = vec![];
        load(CacheType::F16).save(&mut empty).unwrap();
        other = load(CacheType::F16);
        other.prefill(&[1, 2, 3]).unwrap();
        other.restore(&empty[..]).unwrap();
        assert!(other.tokens().is_empty());
        other.prefill(&[1, 2, 3]).unwrap();
    }
}

/// What earlier texts left in a page is neither stored nor restored.
#[test]
fn sessions_have_nothing_of_other_sequences() {
    for builder in on_gpus().into_iter().chain([on_cpu()]) {
        let mut runner = builder.from_gguf(MODELS[0].path()).unwrap();
        runner.prefill(&[1, 2, 3]).unwrap();
        let expected = saved(&mut runner);
        runner.reset();
        runner.prefill(&ids(60)).unwrap();
        runner.reset();
        runner.prefill(&[1, 2, 3]).unwrap();
        assert!(saved(&mut runner) == expected);
    }
}

fn refusal(runner: &mut Runner, session: &[u8]) -> String {
    match runner.restore(session) {
        Err(error @ Error::Session(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(()) => panic!("was restored"),
    }
}

#[test]
fn foreign_sessions_are_refused_with_a_reason() {
    let load = |tiny: Tiny| on_cpu().from_gguf(tiny.path()).unwrap();
    let mut runner = load(MODELS[0]);
    write_text(&mut runner, 90);
    let session = saved(&mut runner);
    let mut other = load(Tiny("llama", 0.0));
    other.prefill(&[1, 2]).unwrap();
    assert!(refusal(&mut other, &session).contains("another model"));
    assert_eq!(other.tokens(), [1, 2]);
    let mut other = on_cpu().cache_type(CacheType::Q8_0).from_gguf(MODELS[0].path()).unwrap();
    let message = refusal(&mut other, &session);
    assert!(message.contains("cache_type(F16)") && message.contains("Q8_0"), "{message}");
    let mut short = on_cpu().context_length(100).from_gguf(MODELS[0].path()).unwrap();
    assert!(matches!(short.restore(&session[..]), Err(Error::ContextFull { tokens: 102, .. })));
    assert!(refusal(&mut runner, b"GGUF").contains("ends early"));
    assert!(refusal(&mut runner, &[b'G'; 200]).contains("does not begin"));
    let newer = [&session[..8], &[9], &session[9..]].concat();
    assert!(refusal(&mut runner, &newer).contains("version 9"));
    // All these were found before the sequence was touched.
    assert_eq!(runner.tokens().len(), 102);
    assert!(refusal(&mut runner, &session[..session.len() - 5]).contains("ends early"));
    assert!(runner.tokens().is_empty());

    let path = data("speculation/correlated-blurred.gguf");
    let [mut with, mut without] = [on_cpu(), on_cpu().without_mtp()].map(|builder| builder.from_gguf(&path).unwrap());
    let [session, other] = [&mut with, &mut without].map(|runner| {
        runner.prefill(&[1, 2, 3]).unwrap();
        saved(runner)
    });
    assert!(refusal(&mut with, &other).contains("with `without_mtp`"));
    assert!(refusal(&mut without, &session).contains("without `without_mtp`"));
}

/// A reader or writer that fails after some bytes.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.write(bytes)
    }
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.0);
        self.0 -= count;
        if count == 0 { Err(io::Error::other("the disk is full")) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn failing_readers_and_writers_are_errors() {
    let mut runner = on_cpu().from_gguf(MODELS[0].path()).unwrap();
    write_text(&mut runner, 90);
    let session = saved(&mut runner);
    for len in [0, 10, 70, 300, session.len() - 1] {
        let error = runner.save(Failing(len)).unwrap_err().to_string();
        assert!(error.contains("written: the disk is full"), "{error}");
        let mut other = on_cpu().from_gguf(MODELS[0].path()).unwrap();
        let error = other.restore(session[..len].chain(Failing(0))).unwrap_err().to_string();
        assert!(error.contains("read: the disk is full"), "{error}");
    }
    assert!(saved(&mut runner) == session);
}

/// Sessions with changed bits, parts that are missing, added, repeated or exchanged, and headers
/// with a right checksum and wrong numbers.
#[test]
fn mutated_sessions_are_refused_or_restored_whole() {
    let mut random = Random::new(20);
    let models =
        [MODELS[0].path(), Tiny("gemma3", 0.0).path(), RECURRENT.path(), data("speculation/correlated-blurred.gguf")];
    let mut refused = 0;
    for path in models {
        let mut runner = on_cpu().threads(1).context_length(256).from_gguf(&path).unwrap();
        write_text(&mut runner, 80);
        let session = saved(&mut runner);
        for round in 0..2500 {
            let mut mutated = session.clone();
            mutate(&mut mutated, round, &mut random);
            let peak = crate::support::allocation::peak_during(|| match runner.restore(&mutated[..]) {
                Ok(()) => assert!(mutated.starts_with(&session), "a changed session was restored"),
                Err(Error::Session(_) | Error::ContextFull { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            })
            .1;
            assert!(peak < 4 * session.len() + (1 << 20), "{peak} bytes for a session of {}", session.len());
        }
        runner.restore(&session[..]).unwrap();
        assert!(saved(&mut runner) == session);
    }
    assert!(refused > 8000, "{refused}");
}

fn mutate(bytes: &mut Vec<u8>, round: usize, random: &mut Random) {
    let len = bytes.len();
    match round % 6 {
        0 => (0..1 + random.below(3)).for_each(|_| bytes[random.below(len)] ^= 1 << random.below(8)),
        1 => bytes.truncate(random.below(len)),
        2 => bytes.extend((0..1 + random.below(300)).map(|i| i as u8)),
        3 => {
            let (from, to, count) = (random.below(len), random.below(len), 1 + random.below(len / 4));
            let moved: Vec<_> = bytes.iter().skip(from).take(count).copied().collect();
            bytes.splice(to..(to + moved.len()).min(len), moved);
        }
        4 => drop(bytes.drain(random.below(len)..).take(1 + random.below(200)).count()),
        _ => {
            // A field of the header, with a checksum that is right again.
            let field = 8 + 4 * random.below(13);
            let number = [0, 1, 63, 64, 65, 92, 93, 255, 256, 257, u32::MAX / 4, u32::MAX][random.below(12)];
            bytes[field..field + 4].copy_from_slice(&number.to_le_bytes());
            reseal(bytes, &[]);
        }
    }
}

/// Sessions with right checksums and wrong content: counts, positions, ids, keys, states and hidden
/// rows of a stranger. What is restored can be gone on with.
#[test]
fn resealed_sessions_are_refused_or_can_be_used() {
    let mut random = Random::new(21);
    let [mut refused, mut restored] = [0; 2];
    let models =
        [MODELS[0].path(), Tiny("gemma3", 0.0).path(), RECURRENT.path(), data("speculation/correlated-blurred.gguf")];
    for path in models {
        let mut runner = on_cpu().threads(1).context_length(256).from_gguf(&path).unwrap();
        write_text(&mut runner, 80);
        let session = saved(&mut runner);
        let ends = section_ends(&session);
        for round in 0..400 {
            let mut mutated = session.clone();
            // Half of the changes are to the header and the first section.
            let end = if round % 2 == 0 { ends[0] } else { session.len() };
            for _ in 0..1 + random.below(3) {
                let place = 8 + random.below(end - 8);
                let byte = [0, 1, 63, 64, 92, 127, 255, random.below(256)][random.below(8)];
                mutated[place] = byte as u8;
            }
            reseal(&mut mutated, &ends);
            match runner.restore(&mutated[..]) {
                Ok(()) => restored += 1,
                Err(Error::Session(_) | Error::ContextFull { .. }) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            let options = GenerateOptions { max_tokens: Some(3), ..Default::default() };
            let prompt = [runner.tokens(), &[5]].concat();
            if let Ok(generation) = runner.generate(&prompt, &options) {
                // Elements that are no numbers may make it fail.
                generation.for_each(drop);
            }
            runner.truncate(prompt.len() / 2).unwrap();
            drop(runner.decode(7).map(drop));
            runner.save(io::sink()).unwrap();
        }
        runner.restore(&session[..]).unwrap();
        assert!(saved(&mut runner) == session);
    }
    assert!(refused > 300 && restored > 300, "{refused} refused, {restored} restored");
}

/// Returns the end of each section without its checksum.
fn section_ends(session: &[u8]) -> Vec<usize> {
    let (mut ends, mut start) = (vec![], HEADER);
    while start < session.len() {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&session[HEADER - 4..HEADER]);
        hasher.update(&(ends.len() as u32).to_le_bytes());
        let mut end = start;
        while hasher.clone().finalize().to_le_bytes() != session[end..end + 4] {
            hasher.update(&session[end..end + 1]);
            end += 1;
        }
        ends.push(end);
        start = end + 4;
    }
    ends
}

/// Corrects the checksums of the header and of sections with these ends.
fn reseal(session: &mut [u8], ends: &[usize]) {
    let header = crc32fast::hash(&session[..HEADER - 4]).to_le_bytes();
    session[HEADER - 4..HEADER].copy_from_slice(&header);
    let mut start = HEADER;
    for (number, end) in ends.iter().enumerate() {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header);
        hasher.update(&(number as u32).to_le_bytes());
        hasher.update(&session[start..*end]);
        session[*end..end + 4].copy_from_slice(&hasher.finalize().to_le_bytes());
        start = end + 4;
    }
}
