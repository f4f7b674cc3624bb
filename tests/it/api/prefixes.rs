//! Tests of the beginnings of texts that are kept for later texts of all handles: they are found,
//! change no result, are separated by salts, and never take memory that a text needs.

use std::sync::atomic::Ordering::Relaxed;

use inkstone::{
    CacheType, Decoder, GenerateOptions, GenerateRequest, LogitsFor, Runner, RunnerBuilder, SamplerOptions, SequenceId,
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
const LIMITS: Limits = Limits { vocab_size: VOCAB, max_tokens: 90, max_outputs: 12 };
/// Three pages.
const CONTEXT: usize = 192;

fn logits_of(history: u32) -> Vec<f32> {
    (0..VOCAB as u32).map(|i| (history.wrapping_mul(2 * i + 1) >> 8) as f32 / (1 << 24) as f32).collect()
}

fn fingerprint(ids: &[u32]) -> Vec<f32> {
    logits_of(history(ids))
}

/// Returns ids that differ for different seeds.
fn ids(seed: u64, len: usize) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.below(VOCAB) as u32).collect()
}

/// Returns the logits after a prompt in a sequence of its own, and the number of its tokens that
/// were in the cache.
fn prefill(decoder: &mut Decoder, ids: &[u32]) -> (SequenceId, Vec<f32>, usize) {
    let sequence = decoder.open();
    let prefill = decoder.prefill(sequence, ids, |_, _| true).unwrap();
    (sequence, decoder.logits_mut().to_vec(), prefill.cached)
}

/// The kinds of recorders, with a cache of three full sequences. States are few, too: a sequence
/// has up to twelve.
fn recorders(context: usize) -> Vec<(&'static str, Decoder)> {
    let pages = 3 * context.div_ceil(64);
    let recorder = || Recorder::new(LIMITS, fingerprint).keeping(pages, 36);
    vec![
        ("plain", recorder().into_decoder(context)),
        ("windowed", recorder().windowed(20).into_decoder(context)),
        ("recurrent", recorder().recurrent().into_decoder(context)),
        ("hybrid", recorder().recurrent().windowed(70).into_decoder(context)),
        ("pipelined", recorder().running_pipelined().recurrent().into_decoder(context)),
        ("with a head", recorder().with_head(context, logits_of)),
        ("recurrent with a head", recorder().recurrent().with_head(context, logits_of)),
    ]
}

/// Random prompts of some beginnings, forks, truncations and steps of several decoders, in a cache
/// that has room for three full sequences. A token's logits are always those of its history.
#[test]
fn random_texts_have_their_own_logits_beside_kept_ones() {
    for (name, decoder) in recorders(CONTEXT) {
        for seed in 0..12 {
            let mut random = Random::new(seed);
            let mut decoders: Vec<_> = (0..3).map(|_| decoder.clone()).collect();
            let mut texts: Vec<_> = decoders.iter_mut().map(|decoder| (decoder.open(), vec![])).collect();
            for _ in 0..60 {
                let index = random.below(3);
                let (decoder, (sequence, held)) = (&mut decoders[index], &mut texts[index]);
                match random.below(7) {
                    0 | 1 => {
                        let common = ids(random.below(3) as u64, 20 + random.below(110));
                        *held = [common, ids(random.below(1000) as u64, 1 + random.below(50))].concat();
                        decoder.prefill(*sequence, held, |_, _| true).unwrap();
                        assert_eq!(decoder.logits_mut(), fingerprint(held), "{name}");
                    }
                    2 => {
                        held.truncate(random.below(held.len() + 1));
                        decoder.truncate(*sequence, held.len()).unwrap();
                    }
                    3 => {
                        let fork = decoder.fork(*sequence).unwrap();
                        decoder.close(std::mem::replace(sequence, fork)).unwrap();
                    }
                    4 => {
                        decoder.close(*sequence).unwrap();
                        (*sequence, *held) = (decoder.open(), vec![]);
                    }
                    _ => {
                        for _ in 0..1 + random.below(20) {
                            if held.len() == CONTEXT {
                                break;
                            }
                            let id = random.below(VOCAB) as u32;
                            held.push(id);
                            if random.below(2) == 0 {
                                let next = decoder.greedy(*sequence, id).unwrap();
                                assert_eq!(next, best_of(&fingerprint(held), 1)[0].id, "{name}");
                            } else {
                                let logits = decoder.step(&[(*sequence, &[id], LogitsFor::Last)]).unwrap();
                                assert_eq!(logits, fingerprint(held), "{name}");
                            }
                        }
                    }
                }
            }
            drop(decoders);
            let statistics = decoder.statistics();
            assert_eq!((statistics.sequences, statistics.pages), (0, 0), "{name}: {statistics:?}");
            assert!(statistics.kept_pages > 0, "{name}: {statistics:?}");
        }
        let statistics = decoder.statistics();
        assert!(statistics.cached_tokens > 1000, "{name}: {statistics:?}");
    }
}

/// A second text with the same beginning as one that is still open, or closed, computes its new
/// tokens. Windows and states are known where a prompt ended, or where texts were seen to differ.
#[test]
fn other_handles_compute_only_new_tokens() {
    for (name, decoder) in recorders(640) {
        let (system, [first, second, third]) = (ids(1, 300), [2, 3, 4].map(|seed| ids(seed, 40)));
        let [mut one, mut other] = [decoder.clone(), decoder.clone()];
        let (open, ..) = prefill(&mut one, &[&*system, &first].concat());
        for id in ids(5, 30) {
            one.step(&[(open, &[id], LogitsFor::Last)]).unwrap();
        }
        let prompt = [&*system, &second].concat();
        let (_, logits, cached) = prefill(&mut other, &prompt);
        assert_eq!(logits, fingerprint(&prompt), "{name}");
        let has_state = !name.contains("recurrent") && !["hybrid", "pipelined"].contains(&name);
        assert!(cached >= 300 / 64 * 64 || !has_state, "{name}: {cached}");
        let prompt = [&*system, &third].concat();
        let (sequence, logits, cached) = prefill(&mut other, &prompt);
        assert_eq!(logits, fingerprint(&prompt), "{name}");
        assert!(cached >= 299, "{name}: {cached}");
        // The whole text is found after its sequence is closed.
        let text = [prompt, ids(6, 30)].concat();
        for id in ids(6, 30) {
            other.step(&[(sequence, &[id], LogitsFor::Last)]).unwrap();
        }
        other.close(sequence).unwrap();
        let (_, logits, cached) = prefill(&mut one, &[&*text, &[7]].concat());
        assert_eq!((logits, cached), (fingerprint(&[&*text, &[7]].concat()), text.len()), "{name}");
    }
}

/// A cache of one full sequence: a new text takes the memory of kept ones.
#[test]
fn kept_texts_leave_when_memory_is_needed() {
    for (pages, context) in [(3, CONTEXT), (10, 640)] {
        let recorder = Recorder::new(LIMITS, fingerprint).keeping(pages, 12);
        let computed = recorder.computed();
        let mut decoder = recorder.into_decoder(context);
        for round in 0..3 {
            for seed in 0..4 {
                let text = ids(seed, context);
                let (sequence, logits, cached) = prefill(&mut decoder, &text);
                assert_eq!((logits, cached), (fingerprint(&text), 0), "{round} {seed}");
                decoder.close(sequence).unwrap();
                assert!(decoder.statistics().kept_pages <= pages);
            }
        }
        // The least recently used of two texts leaves.
        let half = context / 2 - 32;
        for (seed, expected) in [(0, 0), (1, 0), (0, half - 1), (2, 0), (0, half - 1), (1, 0)] {
            computed.store(0, Relaxed);
            let (sequence, _, cached) = prefill(&mut decoder, &ids(seed, half));
            assert_eq!((cached, computed.load(Relaxed)), (expected, half - expected), "{seed}");
            decoder.close(sequence).unwrap();
        }
    }
}

/// A device has less memory than the cache was planned with.
#[test]
fn kept_texts_leave_when_the_device_lacks_memory() {
    let recorder = Recorder::new(LIMITS, fingerprint).windowed(20).keeping(30, 12).with_device_pages(4);
    let mut decoder = recorder.into_decoder(CONTEXT);
    for seed in 0..8 {
        let text = ids(seed, CONTEXT);
        let (sequence, logits, cached) = prefill(&mut decoder, &text);
        assert_eq!((logits, cached), (fingerprint(&text), 0), "{seed}");
        decoder.close(sequence).unwrap();
    }
    let (_, _, cached) = prefill(&mut decoder, &ids(7, CONTEXT));
    assert!(cached > 100, "{cached}");
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { sampler: SamplerOptions::greedy(), max_tokens: Some(max_tokens), ..Default::default() }
}

/// Returns the number of cached tokens, the ids and the last logits of a text.
fn written(runner: &mut Runner, prompt: &[u32], options: &GenerateOptions) -> (usize, Vec<u32>) {
    let mut generation = runner.generate(prompt, options).unwrap().past_the_end();
    generation.by_ref().for_each(|piece| drop(piece.unwrap()));
    (generation.summary().cached_tokens, generation.ids().to_vec())
}

/// Two full pages, without the tokens for whose rows a head lacks the hidden ones.
const LEAST_CACHED: usize = 126;

fn texts_and_logits_are_those_of_a_fresh_runner(builder: &RunnerBuilder, models: &[Tiny]) {
    for tiny in models {
        let runner = builder.from_gguf(tiny.path()).unwrap();
        let system = ids(1, 140);
        let prompts = [2, 3, 4].map(|seed| [&*system, &ids(seed, 9)].concat());
        let fresh = |prompt: &[u32]| {
            let mut fresh = builder.from_gguf(tiny.path()).unwrap();
            let (_, text) = written(&mut fresh, prompt, &greedy(12));
            fresh.truncate(prompt.len() - 1).unwrap();
            (text, fresh.decode(prompt[prompt.len() - 1]).unwrap().to_vec())
        };
        let mut first = runner.clone();
        assert_eq!(written(&mut first, &prompts[0], &greedy(12)).0, 0);
        for prompt in &prompts[1..] {
            let mut other = runner.clone();
            let (cached, text) = written(&mut other, prompt, &greedy(12));
            assert!(cached >= LEAST_CACHED, "{}: {cached}", tiny.0);
            other.truncate(prompt.len() - 1).unwrap();
            let logits = other.decode(prompt[prompt.len() - 1]).unwrap().to_vec();
            assert!((text, logits) == fresh(prompt), "{}", tiny.0);
        }
        let statistics = runner.statistics();
        assert!(statistics.cached_tokens >= 2 * LEAST_CACHED as u64, "{}: {statistics:?}", tiny.0);
        assert_eq!(statistics.prompt_tokens, 3 * 149);
    }
}

#[test]
fn texts_are_those_of_a_fresh_runner_bit_for_bit() {
    let families = ["gemma3", "gpt_oss", "lfm2", "deepseek2", "qwen3next"].map(|name| Tiny(name, 0.0));
    let models = [&[MODELS[0], RECURRENT], &families[..]].concat();
    texts_and_logits_are_those_of_a_fresh_runner(&on_cpu(), &models);
}

#[test]
fn texts_on_gpus_are_those_of_a_fresh_runner() {
    for gpu in drive::gpus() {
        let name = gpu.device().name.clone();
        let builder = Runner::builder().device(inkstone::Device::Gpu(inkstone::Adapter::Named(name)));
        // In steps of up to 16 tokens, bits do not depend on where a prompt is divided.
        let builder = builder.cache_type(CacheType::F16).prefill_chunk(16);
        texts_and_logits_are_those_of_a_fresh_runner(&builder, &[MODELS[0]]);
    }
}

/// The head drafts after kept tokens as after the text's own, so as many drafts are accepted.
#[test]
fn heads_draft_after_kept_tokens() {
    let path = data("speculation/correlated-blurred.gguf");
    let load = || on_cpu().without_ngrams().from_gguf(&path).unwrap();
    let options = GenerateOptions { speculation: Speculation::Exactly(3), ..greedy(30) };
    let write = |runner: &mut Runner, prompt: &[u32]| {
        let mut generation = runner.generate(prompt, &options).unwrap().past_the_end();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        let summary = generation.summary();
        let drafts = (summary.speculation.drafted, summary.speculation.accepted);
        (summary.cached_tokens, (generation.ids().to_vec(), drafts))
    };
    let runner = load();
    let system = ids(1, 100);
    for seed in 2..6 {
        let prompt = [&*system, &ids(seed, 7)].concat();
        let (cached, found) = write(&mut runner.clone(), &prompt);
        assert!(cached >= 64 || seed == 2, "{cached}");
        assert_eq!(found, write(&mut load(), &prompt).1);
    }
}

#[test]
fn salts_separate_texts() {
    let runner = on_cpu().from_gguf(MODELS[0].path()).unwrap();
    let prompt = ids(1, 100);
    let salted = |salt: Option<&str>| GenerateOptions { cache_salt: salt.map(Into::into), ..greedy(3) };
    let expected = written(&mut runner.clone(), &prompt, &salted(Some("other"))).1;
    let in_turn = [
        (None, 0),
        (Some("a"), 0),
        (None, 99),
        (Some("a"), 99),
        (Some(""), 0),
        (Some("b"), 0),
        (Some("a"), 99),
        (Some("a"), 99),
    ];
    for keeps_handle in [true, false] {
        let runner = on_cpu().from_gguf(MODELS[0].path()).unwrap();
        let mut handle = runner.clone();
        for (salt, cached) in in_turn {
            if !keeps_handle {
                handle = runner.clone();
            }
            let found = written(&mut handle, &prompt, &salted(salt));
            assert_eq!(found, (cached, expected.clone()), "{salt:?}, {keeps_handle}");
        }
    }
    // Requests with several salts share nothing, and requests with one do.
    let requests = ["c", "d", "c"].map(|salt| GenerateRequest::new(&prompt, salted(Some(salt))));
    let many = runner.clone().generate_many(requests, |_, _| true).unwrap();
    assert_eq!(many.iter().map(|text| text.summary.cached_tokens).collect::<Vec<_>>(), [0, 0, 0]);
    let requests = ["c", "c", "e"].map(|salt| GenerateRequest::new(&prompt, salted(Some(salt))));
    let many = runner.clone().generate_many(requests, |_, _| true).unwrap();
    assert_eq!(many.iter().map(|text| text.summary.cached_tokens).collect::<Vec<_>>(), [99, 99, 0]);
    assert!(many.iter().all(|text| text.ids == expected));
}

/// Labels that are scored in any way share their prefix, and score as with a fresh runner.
#[test]
fn scores_share_their_prefix() {
    let runner = on_cpu().from_gguf(MODELS[0].path()).unwrap();
    let (prefix, labels) = (ids(1, 130), [2, 3, 4].map(|seed| ids(seed, 3)));
    let expected = on_cpu().from_gguf(MODELS[0].path()).unwrap().score_many(&prefix, &labels, 2).unwrap();
    for (label, expected) in labels.iter().zip(&expected) {
        assert_eq!(runner.clone().score(&prefix, label, 2).unwrap(), *expected);
    }
    assert_eq!(runner.clone().score_many(&prefix, &labels, 2).unwrap(), expected);
    let statistics = runner.statistics();
    assert_eq!((statistics.prompt_tokens, statistics.cached_tokens), (4 * 130, 3 * 129));
    assert_eq!(statistics.pages, 0);
}

/// The keys and values of a session may not be those of its tokens.
#[test]
fn restored_texts_are_not_kept() {
    let runner = on_cpu().from_gguf(MODELS[0].path()).unwrap();
    let prompt = ids(1, 100);
    let mut session = vec![];
    let mut saved = on_cpu().from_gguf(MODELS[0].path()).unwrap();
    saved.prefill(&prompt).unwrap();
    saved.save(&mut session).unwrap();
    let mut restored = runner.clone();
    restored.restore(&session[..]).unwrap();
    let text = [&*prompt, &[7]].concat();
    assert_eq!(written(&mut restored, &text, &greedy(20)).0, 100);
    restored.reset();
    drop(restored);
    assert_eq!(written(&mut runner.clone(), &text, &greedy(1)).0, 0);
    assert_eq!(written(&mut runner.clone(), &text, &greedy(1)).0, 100);
}

/// Without a limit, memory does not grow beyond that of a full context for kept texts.
#[test]
fn kept_texts_take_at_most_the_memory_of_a_full_context() {
    let builder = on_cpu().context_length(256);
    for tiny in [MODELS[0], Tiny("gemma3", 0.0), RECURRENT] {
        let runner = builder.from_gguf(tiny.path()).unwrap();
        for seed in 0..12 {
            written(&mut runner.clone(), &ids(seed, 100), &greedy(30));
            let statistics = runner.statistics();
            assert!(statistics.kept_bytes <= runner.memory().cache(), "{}: {statistics:?}", tiny.0);
        }
        assert!(runner.statistics().kept_bytes > runner.memory().cache() / 4, "{}", tiny.0);
        // Open texts take their memory.
        let mut open: Vec<_> = (0..4).map(|_| runner.clone()).collect();
        for (seed, runner) in (20..).zip(&mut open) {
            written(runner, &ids(seed, 200), &greedy(40));
        }
        assert!(runner.statistics().pages >= 4 * 3, "{}", tiny.0);
    }
}
