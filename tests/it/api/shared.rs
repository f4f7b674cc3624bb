//! Tests of the steps that several threads share: results are those of each thread alone, whatever
//! the others do, and an error of one does not reach the others.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use inkstone::{
    CacheType, Decoder, Error, GenerateOptions, LogitsFor, Result, Runner, RunnerBuilder, SamplerOptions, SequenceId,
    Speculation, internals::generate::Limits,
};

use crate::support::{
    data, drive,
    graphs::Random,
    on_cpu,
    recorder::{Recorder, best_of, history},
    tiny::{MODELS, RECURRENT, Tiny},
};

const VOCAB: usize = 50;
const LIMITS: Limits = Limits { vocab_size: VOCAB, max_tokens: 40, max_outputs: 12 };
const CONTEXT: usize = 300;
const THREADS: usize = 5;

fn logits_of(history: u32) -> Vec<f32> {
    (0..VOCAB as u32).map(|i| (history.wrapping_mul(2 * i + 1) >> 8) as f32 / (1 << 24) as f32).collect()
}

/// Logits that differ for different histories, after a while in which other threads want steps.
fn fingerprint(ids: &[u32]) -> Vec<f32> {
    thread::sleep(Duration::from_micros(30));
    logits_of(history(ids))
}

/// A sequence and the ids that it should have.
struct Text {
    sequence: SequenceId,
    ids: Vec<u32>,
}

/// Does random things with some sequences, and checks each result.
fn work(decoder: &mut Decoder, seed: u64, rounds: usize) -> Result<()> {
    let mut random = Random::new(seed);
    let mut texts: Vec<_> = (0..3).map(|_| Text { sequence: decoder.open(), ids: vec![] }).collect();
    for _ in 0..rounds {
        let chosen = random.below(texts.len());
        let Text { sequence, ids } = &mut texts[chosen];
        let new: Vec<u32> = (0..[1, 1, 1, 3, 9, 60][random.below(6)]).map(|_| random.below(VOCAB) as u32).collect();
        if ids.len() + new.len() > CONTEXT {
            ids.truncate(random.below(CONTEXT / 2));
            decoder.truncate(*sequence, ids.len())?;
        }
        match random.below(6) {
            0 => {
                let before = ids.len();
                let logits = decoder.step(&[(*sequence, &new, LogitsFor::All)])?.to_vec();
                ids.extend(&new);
                let expected = (before + 1..=ids.len()).flat_map(|end| logits_of(history(&ids[..end])));
                assert!(logits.into_iter().eq(expected));
            }
            1 => {
                ids.extend(&new);
                decoder.prefill(*sequence, ids, |_, _| true)?;
                assert_eq!(decoder.logits_mut(), logits_of(history(ids)));
            }
            2 => {
                ids.push(new[0]);
                let found = decoder.greedy(*sequence, new[0])?;
                assert_eq!(found, best_of(&logits_of(history(ids)), 1)[0].id);
            }
            3 => {
                ids.push(new[0]);
                let found = decoder.best(&[(*sequence, new[0])], 4)?.map(|top| top[0].best.clone());
                let expected = logits_of(history(ids));
                match found {
                    Some(best) => assert_eq!(best, best_of(&expected, 4)),
                    None => assert_eq!(decoder.logits_mut(), expected),
                }
            }
            4 => {
                let fork = Text { sequence: decoder.fork(*sequence)?, ids: ids.clone() };
                let other = random.below(texts.len());
                decoder.close(std::mem::replace(&mut texts[other], fork).sequence)?;
            }
            _ => {
                let runs: Vec<_> = texts.iter().map(|text| (text.sequence, &new[..1], LogitsFor::Last)).collect();
                if texts.iter().any(|text| text.ids.len() == CONTEXT) {
                    continue;
                }
                let logits = decoder.step(&runs)?.to_vec();
                texts.iter_mut().for_each(|text| text.ids.push(new[0]));
                assert!(logits.into_iter().eq(texts.iter().flat_map(|text| logits_of(history(&text.ids)))));
            }
        }
    }
    texts.into_iter().try_for_each(|text| decoder.close(text.sequence))
}

fn at_once(decoder: &Decoder, work: impl Fn(&mut Decoder, u64) + Sync) {
    thread::scope(|scope| {
        for seed in 0..THREADS as u64 {
            let (mut decoder, work) = (decoder.clone(), &work);
            scope.spawn(move || work(&mut decoder, seed));
        }
    });
}

fn recorders(recorder: impl Fn() -> Recorder) -> Vec<(&'static str, Decoder)> {
    vec![
        ("plain", recorder().into_decoder(CONTEXT)),
        ("windowed", recorder().windowed(20).into_decoder(CONTEXT)),
        ("recurrent", recorder().recurrent().into_decoder(CONTEXT)),
        ("sorting", recorder().sorting().windowed(9).into_decoder(CONTEXT)),
        ("pipelined", recorder().running_pipelined().into_decoder(CONTEXT)),
        ("with a head", recorder().with_head(CONTEXT, logits_of)),
    ]
}

#[test]
fn threads_share_steps_with_the_results_of_each_alone() {
    for (name, decoder) in recorders(|| Recorder::new(LIMITS, fingerprint)) {
        at_once(&decoder, |decoder, seed| work(decoder, seed, 60).unwrap());
        let statistics = decoder.statistics();
        assert!(statistics.most_calls > 2, "{name}: {statistics:?}");
        let left = (statistics.running, statistics.waiting, statistics.sequences, statistics.pages);
        assert_eq!(left, (0, 0, 0, 0), "{name}");
    }
}

/// A thread's three texts have up to five pages each, and it may fork a full one.
#[test]
fn threads_with_memory_for_one_have_the_results_of_each_alone() {
    let limited = || Recorder::new(LIMITS, fingerprint).limited(16, 12);
    for (name, decoder) in recorders(limited) {
        at_once(&decoder, |decoder, seed| work(decoder, seed, 60).unwrap());
        let statistics = decoder.statistics();
        assert!(
            statistics.preemptions + statistics.evictions > 0 && statistics.recomputed_tokens > 0,
            "{name}: {statistics:?}"
        );
        let left = (statistics.running, statistics.waiting, statistics.short_of_memory);
        assert_eq!((left, statistics.sequences, statistics.pages), ((0, 0, 0), 0, 0), "{name}");
    }
}

#[test]
fn a_failed_step_ends_at_most_its_own_calls() {
    for steps in [3, 10, 25, 40] {
        let mut decoder = Recorder::new(LIMITS, fingerprint).windowed(20).failing_after(steps).into_decoder(CONTEXT);
        let failed = AtomicUsize::new(0);
        at_once(&decoder, |decoder, seed| {
            // A thread that runs ahead of the others may reach the failure in its second text.
            for seed in [seed, seed + 100] {
                if let Err(error) = work(decoder, seed, 20) {
                    assert!(matches!(error, Error::Unsupported(_)), "{error}");
                    failed.fetch_add(1, Relaxed);
                }
            }
        });
        assert!(failed.load(Relaxed) <= 1, "{failed:?} of {THREADS} threads failed");
        work(&mut decoder, 200, 20).unwrap();
    }
}

/// Returns a prompt that depends on a seed.
fn prompt_of(seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..90 + random.below(90)).map(|_| random.below(300) as u32).collect()
}

/// Returns the logits of a prompt and of some tokens after it.
fn logits_after(runner: &mut Runner, seed: u64) -> Result<Vec<f32>> {
    let mut random = Random::new(seed + 1000);
    let sequence = runner.sequence();
    runner.decoder_mut().prefill(sequence, &prompt_of(seed), |_, _| true)?;
    let mut logits = runner.decoder_mut().logits_mut().to_vec();
    for _ in 0..15 {
        logits.extend_from_slice(runner.decode(random.below(300) as u32)?);
    }
    Ok(logits)
}

/// Decoding goes on while others compute prompts in pieces.
#[test]
fn logits_on_the_cpu_are_the_same_bits_beside_other_threads() {
    for tiny in [MODELS[0], RECURRENT, Tiny("gemma3", 0.0), Tiny("qwen3moe", 0.0)] {
        let runner = on_cpu().threads(2).from_gguf(tiny.path()).unwrap();
        let expected: Vec<_> = (0..4).map(|seed| logits_after(&mut runner.clone(), seed).unwrap()).collect();
        thread::scope(|scope| {
            for round in 0..2 {
                for (seed, expected) in expected.iter().enumerate() {
                    let mut runner = runner.clone();
                    scope.spawn(move || {
                        for _ in 0..3 {
                            assert!(logits_after(&mut runner, seed as u64).unwrap() == *expected, "{} {round}", tiny.0);
                            runner.reset();
                        }
                    });
                }
            }
        });
        assert!(runner.statistics().most_calls > 2, "{}: {:?}", tiny.0, runner.statistics());
    }
}

fn texts_are_the_same_at_once(builder: &RunnerBuilder, path: &std::path::Path, threads: u64) {
    let runner = builder.from_gguf(path).unwrap();
    let written = |runner: &mut Runner, seed: u64| {
        let sampler =
            SamplerOptions { temperature: [0.0, 0.9][seed as usize % 2], seed: Some(seed), ..Default::default() };
        let speculation = [Speculation::Off, Speculation::Exactly(3), Speculation::Auto][seed as usize % 3];
        let options = GenerateOptions { sampler, speculation, max_tokens: Some(20), ..Default::default() };
        let prompt = ["the fox jumps over the", "a fish", "the quick cat. the quick"][seed as usize % 3].repeat(3);
        let mut generation = runner.generate(&prompt, &options).unwrap().past_the_end();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        generation.ids().to_vec()
    };
    let expected: Vec<_> = (0..threads).map(|seed| written(&mut runner.clone(), seed)).collect();
    runner.clone().clear_cache();
    let barrier = Barrier::new(expected.len());
    thread::scope(|scope| {
        for (seed, expected) in expected.iter().enumerate() {
            let (mut runner, written, barrier) = (runner.clone(), &written, &barrier);
            scope.spawn(move || {
                barrier.wait();
                assert_eq!(written(&mut runner, seed as u64), *expected, "seed {seed}");
            });
        }
    });
    assert!(runner.statistics().most_calls > 1, "{:?}", runner.statistics());
}

#[test]
fn texts_at_once_are_those_alone() {
    for path in [MODELS[0].path(), RECURRENT.path(), data("speculation/correlated-blurred.gguf")] {
        texts_are_the_same_at_once(&on_cpu().threads(1), &path, 6);
    }
}

#[test]
fn texts_at_once_on_gpus_are_those_alone() {
    for gpu in drive::gpus() {
        let name = gpu.device().name.clone();
        let builder = Runner::builder().device(inkstone::Device::Gpu(inkstone::Adapter::Named(name)));
        texts_are_the_same_at_once(&builder.cache_type(CacheType::F16), &MODELS[0].path(), 3);
    }
}
